"""Modules of the byteps command."""
