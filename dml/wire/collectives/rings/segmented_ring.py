"""Segmented ring all-reduce: one ring after another, each for a piece of the buffer."""

from collections.abc import Iterator

import numpy as np

from dml.types import Comm, Op, Round
from dml.wire.collectives.ring import ring_allreduce
from dml.wire.comm.buffers import flat
from dml.wire.comm.plain import as_comm
from dml.wire.costs.allreduce import Job, Rates, ring_seconds
from dml.wire.plans.schedules import ring
from dml.wire.plans.topology import segments

CHUNK = 1 << 16  # bytes of the longest message


def segmented_ring_allreduce(
    comm: Comm, buffer: np.ndarray, op: Op = np.add, segment: int = CHUNK
) -> None:
    """Reduce in place over all ranks.

        buffer   │ piece 0 │ piece 1 │ 2 │      pieces of p messages
                 ring      ring      ring       one after another

    The messages and the memory of received chunks stay short, so that a chunk is added
    while it is in the cache. In each piece additions have the order of the ring.
    For s pieces: 2s(p-1) rounds, 2(p-1)n elements over all ranks:
    2s(p-1)α + 2(p-1)/p·nβ + (p-1)/p·nγ.

    Args:
      comm: The ranks.
      buffer: Buffer to reduce.
      op: The reduction.
      segment: Bytes of the longest message.
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    for part in segments(len(buffer), piece(comm.size, buffer.itemsize, segment)):
        ring_allreduce(comm, buffer[part], op, segment)


def piece(size: int, itemsize: int, segment: int) -> int:
    """Return the elements of a piece: a message of each rank."""
    return size * max(1, segment // itemsize)


def segmented_ring(
    size: int, length: int, itemsize: int = 4, segment: int = CHUNK
) -> Iterator[Round]:
    """Yield the rounds of `segmented_ring_allreduce`."""
    for part in segments(length, piece(size, itemsize, segment)):
        yield from ring(size, part.stop - part.start, itemsize, segment)


def segmented_ring_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of rings that follow each other, an upper bound.

    It is exact on the uniform network if the chunks of each piece are equal.
    """
    segment = min(job.segment, CHUNK)
    parts = segments(job.length, piece(job.size, job.itemsize, segment))
    return sum(
        ring_seconds(job._replace(length=part.stop - part.start), rates)
        for part in parts
    )
