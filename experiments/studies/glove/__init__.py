"""Modules of the glove commands."""
