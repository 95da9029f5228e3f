"""Measurements of a run: timers, timelines, equality of replicas, gradient noise."""
