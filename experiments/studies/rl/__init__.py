"""Modules of the command rl.py, and of others that train on environments."""
