"""Reduce-scatter and all-gather: the two halves of a ring, each by itself."""

import numpy as np

from dml.types import Comm, Op
from dml.wire.collectives.ring import ring_gather, ring_scatter
from dml.wire.comm.buffers import flat
from dml.wire.plans.topology import SEGMENT, chunks


def reduce_scatter(
    comm: Comm, buffer: np.ndarray, op: Op = np.add, segment: int = SEGMENT
) -> np.ndarray:
    """Reduce in place so that rank r has all of chunk r; return that chunk.

    The rest of the buffer is left with partial sums.
    p-1 rounds, (p-1)n words over all ranks: (p-1)α + (p-1)/p·n(β + γ).
    """
    buffer = flat(comm, buffer)
    parts = chunks(len(buffer), comm.size)
    ring_scatter(comm, buffer, onward(parts), op, segment)
    return buffer[parts[comm.rank]]


def all_gather(comm: Comm, buffer: np.ndarray) -> None:
    """Copy chunk r of rank r's buffer into everyone's, for every r.

    p-1 rounds, (p-1)n words over all ranks: (p-1)α + (p-1)/p·nβ.
    """
    buffer = flat(comm, buffer)
    ring_gather(comm, buffer, onward(chunks(len(buffer), comm.size)))


def onward(parts: tuple[slice, ...]) -> tuple[slice, ...]:
    """Name each part one later: the ring leaves part c at rank c-1."""
    return parts[-1:] + parts[:-1]
