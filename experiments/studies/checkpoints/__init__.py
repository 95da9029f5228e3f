"""Modules of the command checkpoints.py."""
