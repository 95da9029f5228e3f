"""Modules of the command tensor.py."""
