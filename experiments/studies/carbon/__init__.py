"""Modules of the carbon commands."""
