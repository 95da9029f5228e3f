"""Training edge by edge, by all cores of one host on one table."""
