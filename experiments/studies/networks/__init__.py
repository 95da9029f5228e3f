"""Modules of the networks commands."""
