"""Modules of the command kfac.py."""
