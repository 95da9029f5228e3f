"""Strategies in the shared memory of one host, one example after another."""
