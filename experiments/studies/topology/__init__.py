"""Modules of the command topology.py."""
