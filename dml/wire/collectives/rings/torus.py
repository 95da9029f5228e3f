"""Torus all-reduce (Mikami 2018): rings along the dimensions of a grid."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from dml.types import BadInput, Comm, Op, Round
from dml.wire.collectives.ring import ring_gather, ring_scatter
from dml.wire.comm.buffers import flat
from dml.wire.comm.plain import as_comm
from dml.wire.costs.allreduce import Job, Rates, ring_seconds
from dml.wire.plans.schedules import chunk_bytes, ring_rounds, step
from dml.wire.plans.topology import SEGMENT, chunks
from dml.wire.plans.windows import line_lengths, lines_through


def torus_allreduce(
    comm: Comm,
    buffer: np.ndarray,
    op: Op = np.add,
    segment: int = SEGMENT,
    sides: Sequence[int] = (),
) -> None:
    """Reduce in place over all ranks.

        0 ─► 1 ─► 2 ─┐      reduce-scatter around the rows: rank (i, j) has the sum of
        3 ─► 4 ─► 5 ─┤      chunk j + 1 over row i; then around the columns: the sum
        │    │    │         over all ranks of a chunk of this chunk; then all-gathers
        ▼    ▼    ▼         around the columns and around the rows

    Ranks are numbered by row. The grid is the most square one with p places; for prime
    p it is one row, a ring. More than two sides are a torus of as many dimensions; the
    last one is reduced first. A chunk is added in the order of the ring of its row,
    then in that of the ring of its column.
    For sides r, c, …: 2(r - 1 + c - 1 + …) rounds, 2(p-1)n elements over all ranks:
    2(r - 1 + c - 1 + …)α + 2(p-1)/p·nβ + (p-1)/p·nγ.

    Args:
      comm: The ranks.
      buffer: Buffer to reduce.
      op: The reduction.
      segment: Bytes of a segment.
      sides: Sides of the torus with product p; () is the most square grid.
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    chunk, scattered = buffer, []
    for line in lines_through(comm.rank, grid(comm.size, sides)):
        parts = chunks(len(chunk), len(line))
        ring_scatter(comm, chunk, parts, op, segment, line)
        scattered.append((chunk, parts, line))
        chunk = chunk[parts[(line.index(comm.rank) + 1) % len(line)]]
    for chunk, parts, line in reversed(scattered):
        ring_gather(comm, chunk, parts, line)


def grid(size: int, sides: Sequence[int] = ()) -> tuple[int, ...]:
    """Return the sides; () is the most square grid of `size` places."""
    if sides:
        if math.prod(sides) != size or min(sides) < 1:
            raise BadInput(
                f"expected sides with product {size}, got {tuple(sides)}; "
                "pass () for the most square grid"
            )
        return tuple(sides)
    rows = next(r for r in range(math.isqrt(size), 0, -1) if size % r == 0)
    return rows, size // rows


def torus(
    size: int,
    length: int,
    itemsize: int = 4,
    segment: int = SEGMENT,
    sides: Sequence[int] = (),
) -> Iterator[Round]:
    """Yield the rounds of `torus_allreduce`."""
    phases = [
        (list(lines), owned * itemsize)
        for lines, owned in line_lengths(grid(size, sides), length, owned_chunks)
    ]
    for lines, owned in phases:
        yield from ring_rounds(lines, owned, step(itemsize, segment))
    for lines, owned in reversed(phases):
        yield from ring_rounds(lines, owned, None)


def owned_chunks(length: int, side: int) -> np.ndarray:
    """Return the elements that each place of a ring owns: rank c - 1 has chunk c."""
    return np.roll(chunk_bytes(length, side, 1), -1)


def torus_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of rings along the dimensions, for the longest chunks."""
    total = 0.0
    for side in reversed(grid(job.size)):
        total += ring_seconds(job._replace(size=side), rates)
        job = job._replace(length=-(-job.length // side))
    return total
