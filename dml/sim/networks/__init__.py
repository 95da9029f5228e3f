"""Virtual networks, one per file: pure arithmetic, vectorised over messages.

`named.network` builds them from text. Nothing is imported here: numba loads slowly.
"""
