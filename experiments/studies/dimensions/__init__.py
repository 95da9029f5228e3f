"""Modules of the dimensions command."""
