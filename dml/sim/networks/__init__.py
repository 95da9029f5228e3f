"""Virtual networks, one a file: pure arithmetic, vectorised over messages.

`named.network` builds them from texts. Nothing is imported here: numba takes its time.
"""
