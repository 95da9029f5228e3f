"""Strategies of actors, which step environments, and learners, which update params."""
