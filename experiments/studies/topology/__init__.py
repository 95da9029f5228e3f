"""Modules of the topology command."""
