"""Modules of the shared memory commands."""
