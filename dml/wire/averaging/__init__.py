"""Averages without a centre: protocols in rounds, on real and on virtual ranks."""
