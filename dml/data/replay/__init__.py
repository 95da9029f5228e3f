"""Prioritised replay: transitions, a ring buffer, and a sum tree of integers."""
