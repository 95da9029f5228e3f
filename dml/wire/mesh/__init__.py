"""The medium of a mesh: devices, of one process or of many, that XLA moves numbers on.

What leaves a device here does so inside a compiled step, by psum and its like under
jax.shard_map; no communicator sees or counts it.
"""
