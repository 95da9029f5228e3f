"""Modules of the server commands."""
