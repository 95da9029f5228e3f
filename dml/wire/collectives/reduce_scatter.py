"""Reduce-scatter and all-gather: the two halves of the ring all-reduce."""

import numpy as np

from dml.types import Comm, Op
from dml.wire.collectives.ring import ring_gather, ring_scatter
from dml.wire.comm.buffers import flat
from dml.wire.comm.plain import as_comm
from dml.wire.plans.topology import SEGMENT, chunks


def reduce_scatter(
    comm: Comm, buffer: np.ndarray, op: Op = np.add, segment: int = SEGMENT
) -> np.ndarray:
    """Reduce chunk r over all ranks into the buffer of rank r; return the chunk.

    The other chunks of the buffer are overwritten with partial sums.
    p-1 rounds, (p-1)n elements over all ranks: (p-1)α + (p-1)/p·n(β + γ).
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    parts = chunks(len(buffer), comm.size)
    ring_scatter(comm, buffer, ring_order(parts), op, segment)
    return buffer[parts[comm.rank]]


def all_gather(comm: Comm, buffer: np.ndarray) -> None:
    """Copy chunk r of the buffer of rank r to all ranks, for every r.

    p-1 rounds, (p-1)n elements over all ranks: (p-1)α + (p-1)/p·nβ.
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    ring_gather(comm, buffer, ring_order(chunks(len(buffer), comm.size)))


def ring_order(parts: tuple[slice, ...]) -> tuple[slice, ...]:
    """Rotate the parts by one, so that part r of the original order ends on rank r.

    `ring_scatter` reduces part r+1 of the parts it receives onto rank r.
    """
    return parts[-1:] + parts[:-1]
