"""Modules of train.py."""
