"""Modules of the large batch command."""
