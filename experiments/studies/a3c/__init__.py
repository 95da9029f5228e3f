"""Modules of the command a3c.py."""
