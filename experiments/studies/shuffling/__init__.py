"""Modules of shuffling.py."""
