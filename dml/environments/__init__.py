"""Environments: vectorised, and compiled or adapted from other packages."""
