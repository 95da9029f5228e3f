"""Tree all-reduce: a binomial tree sums up to rank 0 and sends back down."""

import numpy as np

from dml.types import Comm, Op
from dml.wire.collectives.broadcast import broadcast
from dml.wire.collectives.segments import Lane
from dml.wire.comm.buffers import flat
from dml.wire.comm.tags import Tag
from dml.wire.plans.topology import SEGMENT, children, parent


def tree_allreduce(
    comm: Comm, buffer: np.ndarray, op: Op = np.add, segment: int = SEGMENT
) -> None:
    """Reduce in place over all ranks.

        0 ◄─ 1   2 ◄─ 3   4 ◄─ 5   6 ◄─ 7      round 0
        0 ◄───── 2        4 ◄───── 6           round 1
        0 ◄────────────── 4                    round 2, then the same way back

    Rank r adds the subtrees of r+1, r+2, r+4, … in that order.
    2⌈lg p⌉ rounds, 2(p-1)n words over all ranks: 2⌈lg p⌉(α + nβ) + ⌈lg p⌉nγ.
    """
    buffer = flat(comm, buffer)
    lane = Lane(comm, buffer, op, Tag.TREE, segment)
    for child in children(comm.rank, comm.size):
        lane.receive(buffer, child)
    if comm.rank:
        lane.send(buffer, parent(comm.rank))
    broadcast(comm, buffer)
