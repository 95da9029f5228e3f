"""Modules of the command environments.py."""
