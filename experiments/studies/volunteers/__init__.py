"""Modules of the command volunteers.py."""
