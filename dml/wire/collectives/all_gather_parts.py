"""All-gather of parts of any lengths, used for the sparse rows of gradients."""

import numpy as np

from dml.types import BadInput, Comm
from dml.wire.collectives.predicted import predicted_seconds
from dml.wire.collectives.rates import machine_rates
from dml.wire.collectives.reduce_scatter import all_gather, ring_order
from dml.wire.collectives.ring import ring_gather
from dml.wire.comm.buffers import flat
from dml.wire.comm.plain import as_comm
from dml.wire.costs import allreduce as cost


def gather_lengths(comm: Comm, length: int) -> np.ndarray:
    """Return the length of the part of every rank; collective."""
    by_rank = np.zeros(comm.size, np.int64)
    by_rank[comm.rank] = length
    all_gather(comm, by_rank)
    check_lengths(comm, by_rank)
    return by_rank


def check_lengths(comm: Comm, by_rank: np.ndarray) -> None:
    """Raise BadInput if the length of a rank's part is negative."""
    rank = int(by_rank.argmin())
    if by_rank[rank] < 0:
        raise BadInput(
            f"rank {comm.rank}: expected a length of 0 or more from rank {rank}, got "
            f"{by_rank[rank]}; start all ranks with the same program and flags"
        )


def all_gather_parts(comm: Comm, part: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the parts of all ranks, concatenated in rank order; collective.

        r0 ──aa──► r1 ──bbb──► r2 ──c──►      round i: rank r sends part r-i
         ▲────────────────────────────┘       and receives part r-i-1

    For n elements in all parts: p-1 rounds, (p-1)n elements sent over all ranks. With
    equal parts: (p-1)α + (p-1)/p·nβ.

    Args:
      comm: The ranks.
      part: This rank's part.
      lengths: Lengths of the parts of all ranks, from `gather_lengths`.
    """
    comm = as_comm(comm)
    edges = np.concatenate([[0], np.cumsum(lengths)])
    parts = tuple(slice(edges[r], edges[r + 1]) for r in range(comm.size))
    gathered = np.empty(edges[-1], part.dtype)
    gathered[parts[comm.rank]] = flat(comm, part)
    ring_gather(comm, gathered, ring_order(parts))
    return gathered


def dense_is_cheaper(
    comm: Comm, allreduce: str, buffer: np.ndarray, nbytes: int
) -> bool:
    """Return whether an all-reduce is predicted to be faster than an all-gather.

    Args:
      comm: The ranks.
      allreduce: Name of the all-reduce.
      buffer: The dense buffer to reduce.
      nbytes: Size in bytes of the sparse parts of all ranks, to gather instead.
    """
    gather = cost.gather_seconds(comm.size, nbytes, machine_rates(comm))
    return predicted_seconds(comm, allreduce, buffer) < gather
