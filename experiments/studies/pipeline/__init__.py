"""Modules of the command pipeline.py."""
