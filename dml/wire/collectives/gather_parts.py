"""All-gather of parts of any length: how sparse rows travel."""

import numpy as np

from dml.types import Comm
from dml.wire.collectives.auto import predicted, rates
from dml.wire.collectives.reduce_scatter import all_gather, onward
from dml.wire.collectives.ring import ring_gather
from dml.wire.comm.buffers import flat
from dml.wire.costs import allreduce as cost


def lengths(comm: Comm, length: int) -> np.ndarray:
    """Return how long every rank's part is."""
    each = np.zeros(comm.size, np.int64)
    each[comm.rank] = length
    all_gather(comm, each)
    return each


def gather_parts(comm: Comm, mine: np.ndarray, each: np.ndarray) -> np.ndarray:
    """Return all ranks' parts, so long each, in rank order.

        r0 ──aa──► r1 ──bbb──► r2 ──c──►      round i: rank r sends part r-i
         ▲────────────────────────────┘       and receives part r-i-1

    p-1 rounds, (p-1)n words over all ranks, n those of all parts. With equal parts:
    (p-1)α + (p-1)/p·nβ.
    """
    edges = np.concatenate([[0], np.cumsum(each)])
    parts = tuple(slice(edges[r], edges[r + 1]) for r in range(comm.size))
    gathered = np.empty(edges[-1], mine.dtype)
    gathered[parts[comm.rank]] = flat(comm, mine)
    ring_gather(comm, gathered, onward(parts))
    return gathered


def dense_is_cheaper(
    comm: Comm, allreduce: str, buffer: np.ndarray, nbytes: int
) -> bool:
    """Say whether to reduce the buffer is predicted to beat gathering nbytes."""
    gather = cost.gather_seconds(comm.size, nbytes, rates(comm))
    return predicted(comm, allreduce, buffer) < gather
