"""Ape-X: actors, replays with priorities, and a learner; one file for each role."""
