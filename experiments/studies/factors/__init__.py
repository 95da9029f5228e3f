"""Modules of the command sufficient_factors.py."""
