"""Modules of the tensor command."""
