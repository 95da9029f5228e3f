"""Modules of the matrix commands."""
