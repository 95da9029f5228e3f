"""Broadcast down a binomial tree."""

import numpy as np

from dml.types import Comm
from dml.wire.comm.buffers import flat
from dml.wire.comm.plain import as_comm
from dml.wire.comm.tags import Tag
from dml.wire.plans.topology import children, parent


def broadcast(comm: Comm, buffer: np.ndarray, root: int = 0) -> None:
    """Copy the buffer of the rank `root` to all ranks.

        0 ──────────────► 4                    round 0
        0 ─────► 2        4 ─────► 6           round 1
        0 ─► 1   2 ─► 3   4 ─► 5   6 ─► 7      round 2

    ⌈lg p⌉ rounds, (p-1)n elements over all ranks: ⌈lg p⌉(α + nβ).
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    size = comm.size
    place = (comm.rank - root) % size  # in the tree; the root has place 0
    if place:
        comm.Recv(buffer, (parent(place) + root) % size, Tag.BROADCAST)
    for child in reversed(list(children(place, size))):
        comm.Send(buffer, (child + root) % size, Tag.BROADCAST)
