"""Virtual networks, one per file: pure arithmetic, vectorised over messages.

`named.network` builds them from text. Only hardware reports of graphs need numba.
"""
