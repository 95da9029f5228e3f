"""Torus all-reduce (Mikami 2018): rings along the rows and the columns of a grid."""

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
    p it is one row, a ring. A chunk is added in the order of the ring of its row, then
    in that of the ring of its column.
    For r rows and c columns: 2(r + c - 2) rounds, 2(p-1)n elements over all ranks:
    2(r + c - 2)α + 2(p-1)/p·nβ + (p-1)/p·nγ.

    Args:
      comm: The ranks.
      buffer: Buffer to reduce.
      op: The reduction.
      segment: Bytes of a segment.
      sides: Number of rows and of columns; () is the most square grid.
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    rows, columns = grid(comm.size, sides)
    i, j = divmod(comm.rank, columns)
    row = range(i * columns, (i + 1) * columns)
    column = range(j, comm.size, columns)
    parts = chunks(len(buffer), columns)
    chunk = buffer[parts[(j + 1) % columns]]
    leaves = chunks(len(chunk), rows)
    ring_scatter(comm, buffer, parts, op, segment, row)
    ring_scatter(comm, chunk, leaves, op, segment, column)
    ring_gather(comm, chunk, leaves, column)
    ring_gather(comm, buffer, parts, row)


def grid(size: int, sides: Sequence[int] = ()) -> tuple[int, int]:
    """Return the rows and the columns; () is the most square grid of `size` places."""
    if sides:
        if len(sides) != 2 or math.prod(sides) != size or min(sides) < 1:
            raise BadInput(
                f"expected rows and columns with product {size}, got {tuple(sides)}; "
                "pass () for the most square grid"
            )
        return sides[0], sides[1]
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
    rows, columns = grid(size, sides)
    segment = step(itemsize, segment)
    ranks = np.arange(size).reshape(rows, columns)
    owned = np.roll(chunk_bytes(length, columns, itemsize), -1)  # by column
    yield from ring_rounds(list(ranks), owned, segment)
    for reduces in (segment, None):
        for nbytes in np.unique(owned).tolist():
            leaves = np.roll(chunk_bytes(nbytes // itemsize, rows, itemsize), -1)
            yield from ring_rounds(list(ranks.T[owned == nbytes]), leaves, reduces)
    yield from ring_rounds(list(ranks), owned, None)


def torus_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of rings in rows and in columns, for the longest chunks."""
    rows, columns = grid(job.size)
    chunk = -(-job.length // columns)
    return ring_seconds(job._replace(size=columns), rates) + ring_seconds(
        job._replace(size=rows, length=chunk), rates
    )
