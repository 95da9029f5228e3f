"""Modules of rl.py, and of other commands that train on environments."""
