"""Modules of the command offload.py."""
