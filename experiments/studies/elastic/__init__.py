"""Modules of the command elastic.py."""
