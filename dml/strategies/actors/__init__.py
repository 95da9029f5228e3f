"""Strategies of actors, which play episodes, and learners, which update by them."""
