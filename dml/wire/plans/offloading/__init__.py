"""Moves of buffers between the memory of a device and of its host."""
