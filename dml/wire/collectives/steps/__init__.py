"""All-reduces, all-gathers and reduce-scatters by windows of chunks.

A pattern (`dml.wire.plans.windows`) is an all-gather. In reverse it is a
reduce-scatter, and both together are an all-reduce. See docs/allreduce.md.
"""
