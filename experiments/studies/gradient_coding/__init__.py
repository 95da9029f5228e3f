"""Modules of the command gradient_coding.py."""
