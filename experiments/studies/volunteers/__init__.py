"""Modules of volunteers.py."""
