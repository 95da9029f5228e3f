"""Modules of the memory command."""
