"""Virtual networks, one per file: pure arithmetic, vectorised over messages.

`named.network` builds them from text. Reports of Slim Fly and of graphs from files need
Numba, networks that add need SciPy.
"""
