"""Prioritised replay: a sum tree of integers, and a ring buffer of records."""
