"""Modules of decentralised.py."""
