"""Modules of the stragglers command."""
