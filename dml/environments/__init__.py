"""Vectorised environments: compiled kernels, and adapters of other packages."""
