"""Policies of environments: networks, off-policy corrections, losses, and actors."""
