"""Modules of the command apex.py."""
