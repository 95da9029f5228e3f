"""Shared memory of one host, which all of its ranks read and write."""
