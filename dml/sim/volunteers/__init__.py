"""Simulation of volunteers with churn, vectorized over the peers of a round."""
