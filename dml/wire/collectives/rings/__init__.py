"""All-reduces by rings, of pieces of a buffer or along dimensions of a torus.

See docs/allreduce.md.
"""
