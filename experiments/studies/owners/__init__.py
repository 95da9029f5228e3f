"""Modules of the command owners.py."""
