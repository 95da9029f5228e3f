"""Modules of the command averaging.py."""
