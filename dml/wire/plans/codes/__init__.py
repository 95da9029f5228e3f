"""Codes of gradients, against wrong terms and stragglers."""
