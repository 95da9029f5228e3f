"""Timers, rows, run folders and figures of Steps. Imports nothing heavy."""
