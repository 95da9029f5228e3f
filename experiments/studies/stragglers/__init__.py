"""Modules of the command stragglers.py."""
