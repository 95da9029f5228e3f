"""Modules of the papers commands."""
