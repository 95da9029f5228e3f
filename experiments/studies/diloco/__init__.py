"""Modules of diloco.py."""
