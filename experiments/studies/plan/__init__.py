"""Modules of plan.py."""
