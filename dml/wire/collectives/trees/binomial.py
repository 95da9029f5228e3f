"""Broadcast down a binomial tree, and reduction up the tree.

    0 ──────────────► 4                    round 0
    0 ─────► 2        4 ─────► 6           round 1
    0 ─► 1   2 ─► 3   4 ─► 5   6 ─► 7      round 2; a reduction: in reverse

In a reduction rank r adds the sums of the subtrees of r+1, r+2, r+4, … in this order.
⌈lg p⌉ rounds, (p-1)n elements over all ranks: ⌈lg p⌉(α + nβ), and ⌈lg p⌉nγ in a
reduction.
"""

from functools import lru_cache

import numpy as np

from dml.wire.costs.allreduce import Job, Rates, reduce_seconds, send_seconds
from dml.wire.plans.broadcasts import Broadcast, Sends
from dml.wire.plans.schedules import full
from dml.wire.plans.topology import rounds


@lru_cache(maxsize=64)
def plan(size: int, pieces: int) -> tuple[Sends, ...]:
    """Return the rounds, the longest distance first."""
    found = []
    for k in reversed(range(rounds(size))):
        child = np.arange(1 << k, size, 2 << k)
        every = full(len(child), 0), full(len(child), 1)
        found.append(Sends(child - (1 << k), child, *every))
    return tuple(found)


def one_piece(size: int, length: int, most: int) -> int:
    return 1


BINOMIAL = Broadcast(plan, one_piece)


def broadcast_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of the broadcast; exact on the uniform network."""
    return rounds(job.size) * send_seconds(job, rates, job.length)


def reduction_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of the reduction; exact on the uniform network."""
    return rounds(job.size) * reduce_seconds(job, rates, job.length)
