"""Modules of the command policy_lag.py."""
