"""Scans by recursive doubling (Hillis and Steele 1986): ⌈lg p⌉ rounds."""

from collections.abc import Iterator

import numpy as np

from dml.types import Comm, Op, Round
from dml.wire.comm.buffers import flat
from dml.wire.comm.plain import as_comm
from dml.wire.comm.tags import Tag
from dml.wire.costs.allreduce import Job, Rates, send_seconds
from dml.wire.plans.schedules import full
from dml.wire.plans.topology import SEGMENT, rounds


def doubling_scan(
    comm: Comm, buffer: np.ndarray, op: Op = np.add, exclusive: bool = False
) -> None:
    """Reduce in place over ranks 0 … r, or 0 … r-1, for every rank r.

        0 ─► 1 ─► 2 ─► 3 ─► 4      round 0: to r + 1
        0 ──────► 2 ──────► 4      round 1: to r + 2; 1 to 3
        0 ────────────────► 4      round 2: to r + 4

    After k rounds a rank has the sum of the 2^k ranks that end with it; a received sum
    is the first operand. An exclusive scan leaves the buffer of rank 0 unchanged.
    ⌈lg p⌉ rounds, (p - 1) + (p - 2) + (p - 4) + … buffers over all ranks:
    ⌈lg p⌉(α + nβ + nγ); an exclusive scan adds (⌈lg p⌉ - 1)nγ.

    Args:
      comm: The ranks.
      buffer: Buffer to reduce.
      op: The reduction; it need not be commutative.
      exclusive: Whether the own buffer is left out.
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    rank, size, tag = comm.rank, comm.size, Tag.SCAN
    total = buffer.copy() if exclusive else buffer
    received = np.empty_like(buffer)
    for distance in distances(size):
        source, dest = rank - distance, rank + distance
        if source < 0:
            if dest < size:
                comm.Send(total, dest, tag)
            continue
        if dest < size:
            comm.Sendrecv(total, dest, tag, received, source, tag)
        else:
            comm.Recv(received, source, tag)
        if exclusive and distance == 1:
            buffer[...] = received
        elif exclusive:
            comm.Reduce_local(buffer, received, op, buffer)
        comm.Reduce_local(total, received, op, total)


def distances(size: int) -> list[int]:
    """Return 1, 2, 4, … below the number of ranks."""
    return [1 << k for k in range(rounds(size))]


def doubling_scan_rounds(
    size: int,
    length: int,
    itemsize: int = 4,
    segment: int = SEGMENT,
    exclusive: bool = False,
) -> Iterator[Round]:
    """Yield the rounds of `doubling_scan`, which has no segments."""
    for distance in distances(size):
        source = np.arange(size - distance)
        nbytes = full(len(source), length * itemsize)
        reductions = 2 if exclusive and distance > 1 else 1
        yield Round(source, source + distance, nbytes, reductions)


def doubling_scan_seconds(job: Job, rates: Rates, exclusive: bool = False) -> float:
    """Return the seconds of `doubling_scan`; exact on the uniform network."""
    count = rounds(job.size)
    reductions = 2 * count - 1 if exclusive else count
    reduced = rates.gamma * job.length * job.itemsize
    return count * send_seconds(job, rates, job.length) + reductions * reduced
