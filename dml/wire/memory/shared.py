"""One piece of memory that all ranks of a host see."""

from typing import Any

import numpy as np

from dml.types import Comm


def share(comm: Comm, length: int, dtype: Any = np.float32) -> np.ndarray:
    """Give the ranks of each host one zeroed vector that they all see; collective.

    It lives as long as the run, and goes with it, however that ends.
    """
    dtype = np.dtype(dtype)
    hosts = comm.hosts()
    host = comm.Split(hosts[comm.rank], comm.rank) if max(hosts) else comm
    nbytes = length * dtype.itemsize if host.rank == 0 else 0
    window = host.shared_window(nbytes)
    vector = window.parts[0][: length * dtype.itemsize].view(dtype)
    if host.rank == 0:
        vector[:] = 0
    host.Barrier()
    return vector
