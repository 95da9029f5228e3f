"""Modules of the scaling command."""
