"""Reduce-scatter and all-gather: the two halves of the ring all-reduce."""

from collections.abc import Iterator

import numpy as np

from dml.types import Comm, Op, Round
from dml.wire.collectives.ring import ring_gather, ring_scatter
from dml.wire.comm.buffers import flat
from dml.wire.comm.plain import as_comm
from dml.wire.costs.allreduce import Job, Rates, reduce_seconds, send_seconds
from dml.wire.plans.schedules import chunk_bytes, ring_rounds, step
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


def ring_scatter_rounds(
    size: int, length: int, itemsize: int = 4, segment: int = SEGMENT
) -> Iterator[Round]:
    """Yield the rounds of `reduce_scatter`."""
    owned = chunk_bytes(length, size, itemsize)
    yield from ring_rounds([range(size)], owned, step(itemsize, segment))


def ring_gather_rounds(size: int, length: int, itemsize: int = 4) -> Iterator[Round]:
    """Yield the rounds of `all_gather`."""
    yield from ring_rounds([range(size)], chunk_bytes(length, size, itemsize), None)


def ring_scatter_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of `reduce_scatter`; for unequal chunks an upper bound."""
    return (job.size - 1) * reduce_seconds(job, rates, -(-job.length // job.size))


def ring_gather_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of `all_gather`; for unequal chunks an upper bound."""
    return (job.size - 1) * send_seconds(job, rates, -(-job.length // job.size))
