"""Volunteers with churn, evaluated for all peers of a round at once."""
