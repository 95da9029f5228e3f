"""Modules of the plans commands."""
