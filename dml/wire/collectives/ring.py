"""Ring all-reduce (Patarasuk & Yuan 2009): p chunks pass twice around p ranks."""

from collections.abc import Sequence

import numpy as np

from dml.types import Comm, Op
from dml.wire.collectives.segments import SegmentedExchange, copied
from dml.wire.comm.buffers import flat
from dml.wire.comm.plain import as_comm
from dml.wire.comm.tags import Tag
from dml.wire.plans.topology import SEGMENT, chunks


def ring_allreduce(
    comm: Comm,
    buffer: np.ndarray,
    op: Op = np.add,
    segment: int = SEGMENT,
    result: np.ndarray | None = None,
) -> None:
    """Reduce in place over all ranks.

        ┌─► 0 ──► 1 ─┐      reduce-scatter, round i = 0 … p-2: rank r sends
        │            ▼      chunk r-i, receives chunk r-i-1 and adds it;
        └── 3 ◄── 2 ◄┘      it ends with the sum of chunk r+1
                            all-gather, round i: sends r+1-i, receives r-i

    Chunk c is ((x_c + x_{c+1}) + …) + x_{c-1}, with indices modulo p; the order of
    additions, and so the rounding, depends on c and p.
    2(p-1) rounds, 2(p-1)n elements over all ranks:
    2(p-1)α + 2(p-1)/p·nβ + (p-1)/p·nγ.
    With `result`, an array of a narrower type, sums are rounded and copied in its type.
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    parts = chunks(len(buffer), comm.size)
    ring_scatter(comm, buffer, parts, op, segment)
    own = parts[(comm.rank + 1) % comm.size]
    ring_gather(comm, copied(buffer, result, own), parts)


def ring_scatter(
    comm: Comm,
    buffer: np.ndarray,
    parts: Sequence[slice],
    op: Op = np.add,
    segment: int = SEGMENT,
    ring: Sequence[int] | None = None,
) -> None:
    """Reduce every part of the buffer around the ring, part c onto place c-1.

    `ring` has the ranks by place; None is all ranks.
    """
    rank, size, right, left = neighbours(comm, ring)
    segmented = SegmentedExchange(comm, buffer, op, Tag.RING, segment)
    outgoing = buffer[parts[rank]]
    for i in range(size - 1):
        target = buffer[parts[(rank - i - 1) % size]]
        segmented.exchange(outgoing, right, target, left)
        outgoing = target


def ring_gather(
    comm: Comm,
    buffer: np.ndarray,
    parts: Sequence[slice],
    ring: Sequence[int] | None = None,
) -> None:
    """Send every part around the ring to all ranks, part c starting from place c-1."""
    rank, size, right, left = neighbours(comm, ring)
    tag = Tag.RING
    outgoing = buffer[parts[(rank + 1) % size]]
    for i in range(size - 1):
        incoming = buffer[parts[(rank - i) % size]]
        comm.Sendrecv(outgoing, right, tag, incoming, left, tag)
        outgoing = incoming


def neighbours(comm: Comm, ring: Sequence[int] | None) -> tuple[int, int, int, int]:
    """Return this rank's place, the number of places, and the ranks right and left."""
    ring = range(comm.size) if ring is None else ring
    place, size = ring.index(comm.rank), len(ring)
    return place, size, ring[(place + 1) % size], ring[place - 1]
