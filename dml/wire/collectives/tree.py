"""Tree all-reduce: a reduction up a binomial tree, and a broadcast down the tree."""

import numpy as np

from dml.types import Comm, Op
from dml.wire.collectives.broadcast import broadcast
from dml.wire.collectives.segments import SegmentedExchange, copied
from dml.wire.comm.buffers import flat
from dml.wire.comm.plain import as_comm
from dml.wire.comm.tags import Tag
from dml.wire.plans.topology import SEGMENT, children, parent


def tree_allreduce(
    comm: Comm,
    buffer: np.ndarray,
    op: Op = np.add,
    segment: int = SEGMENT,
    result: np.ndarray | None = None,
) -> None:
    """Reduce in place over all ranks.

        0 ◄─ 1   2 ◄─ 3   4 ◄─ 5   6 ◄─ 7      round 0
        0 ◄───── 2        4 ◄───── 6           round 1
        0 ◄────────────── 4                    round 2, then the reverse: a broadcast

    Rank r adds the sums of the subtrees of r+1, r+2, r+4, … in this order.
    2⌈lg p⌉ rounds, 2(p-1)n elements over all ranks: 2⌈lg p⌉(α + nβ) + ⌈lg p⌉nγ.
    With `result`, an array of a narrower type, sums are rounded and copied in its type.
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    segmented = SegmentedExchange(comm, buffer, op, Tag.TREE, segment)
    for child in children(comm.rank, comm.size):
        segmented.receive(buffer, child)
    if comm.rank:
        segmented.send(buffer, parent(comm.rank))
    broadcast(comm, copied(buffer, result, slice(0 if comm.rank else None)))
