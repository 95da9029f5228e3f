"""Star all-reduce: rank 0 adds up all buffers. The baseline of the lectures."""

import numpy as np

from dml.types import Comm, Op
from dml.wire.collectives.segments import SegmentedExchange, copied
from dml.wire.comm.buffers import flat
from dml.wire.comm.plain import as_comm
from dml.wire.comm.tags import Tag
from dml.wire.plans.topology import SEGMENT


def star_allreduce(
    comm: Comm,
    buffer: np.ndarray,
    op: Op = np.add,
    segment: int = SEGMENT,
    result: np.ndarray | None = None,
) -> None:
    """Reduce in place over all ranks.

        1   2   3        first rank 0 receives from 1, 2, … p-1 and adds,
         ╲  │  ╱         then it sends the result to 1, 2, … p-1
           [0]

    Every element is ((x_0 + x_1) + x_2) + … + x_{p-1}: the order of a serial sum.
    2(p-1) rounds, all at rank 0, which receives and sends 2(p-1)n elements:
    2(p-1)(α + nβ) + (p-1)nγ.
    With `result`, an array of a narrower type, sums are rounded and copied in its type.
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    segmented = SegmentedExchange(comm, buffer, op, Tag.STAR, segment)
    if comm.rank:
        segmented.send(buffer, 0)
        comm.Recv(copied(buffer, result), 0, Tag.STAR)
        return
    for peer in range(1, comm.size):
        segmented.receive(buffer, peer)
    sums = copied(buffer, result, slice(None))
    for peer in range(1, comm.size):
        comm.Send(sums, peer, Tag.STAR)
