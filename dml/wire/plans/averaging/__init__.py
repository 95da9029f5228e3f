"""Graphs, groups, weights and losses of averaging without a centre."""
