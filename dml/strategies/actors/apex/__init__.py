"""Ape-X: actors, prioritised replay and a learner."""
