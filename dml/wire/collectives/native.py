"""MPI's own all-reduce, the baseline of all other all-reduces."""

import numpy as np

from dml.types import Comm, Op
from dml.wire.comm.buffers import flat
from dml.wire.comm.plain import as_comm


def native_allreduce(comm: Comm, buffer: np.ndarray, op: Op = np.add) -> None:
    """Reduce in place over all ranks by `MPI_Allreduce`.

    On virtual ranks it takes the lower bound of Chan 2007, below which only algorithms
    are that reduce while they receive:
    ⌈lg p⌉α + 2(p-1)/p·nβ + (p-1)/p·nγ.
    """
    as_comm(comm).Allreduce(None, flat(comm, buffer), op)
