"""Modules of compressed.py."""
