"""WIRE: the one place where numbers leave a worker."""
