"""Modules of byzantine.py."""
