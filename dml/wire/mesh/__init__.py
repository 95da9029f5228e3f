"""Meshes of devices of one or several processes, between which XLA transfers arrays.

Transfers happen inside a compiled step, by collectives such as psum under
jax.shard_map. A `Comm` neither performs nor counts them; see `traffic`.
"""
