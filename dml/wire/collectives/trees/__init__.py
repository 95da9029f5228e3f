"""Broadcasts, reductions and all-reduces along trees; see docs/allreduce.md."""
