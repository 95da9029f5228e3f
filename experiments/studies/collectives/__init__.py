"""Modules of the collectives command."""
