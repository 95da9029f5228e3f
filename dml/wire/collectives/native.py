"""MPI's own all-reduce: the baseline of all others."""

import numpy as np

from dml.types import Comm, Op
from dml.wire.comm.buffers import flat


def native_allreduce(comm: Comm, buffer: np.ndarray, op: Op = np.add) -> None:
    """Reduce in place over all ranks by `MPI_Allreduce`.

    On virtual ranks its time is the bound of Chan 2007, which only algorithms that add
    while receiving can beat:
    ⌈lg p⌉α + 2(p-1)/p·nβ + (p-1)/p·nγ.
    """
    comm.Allreduce(None, flat(comm, buffer), op)
