"""Modules of the deep commands."""
