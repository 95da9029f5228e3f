"""Averaging protocols evaluated for all ranks at once, one number per rank.

The functions have the names, the plans and the faults of those in `wire.averaging`, and
give the same numbers.
"""
