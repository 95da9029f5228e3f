"""Broadcast by a scatter and an all-gather (van de Geijn 1994), and its reverse.

    0 ─ chunks 4 … 7 ─► 4                  a scatter down a binomial tree
    0 ─ chunks 2, 3 ─► 2   4 ─ 6, 7 ─► 6
    0 ─ 1 ─► 1   2 ─ 3 ─► 3   …
    0 ─► 1 ─► 2 … 7 ─► 0                   a ring all-gather, one chunk in each round

The reverse is a ring reduce-scatter, then a gather of the sums up the tree. Chunk c is
((x_{c-1} + x_{c-2}) + …) + x_c with indices modulo p, counted from the root.
⌈lg p⌉ + p - 1 rounds: (⌈lg p⌉ + p - 1)α + 2(p-1)/p·nβ, and (p-1)/p·nγ in a reduction;
for p = 2^k (p - 1 + k/2)n elements over all ranks.
"""

from functools import lru_cache

import numpy as np

from dml.wire.costs.allreduce import Job, Rates, reduce_seconds, send_seconds
from dml.wire.plans.broadcasts import Broadcast, Sends
from dml.wire.plans.topology import rounds
from dml.wire.plans.windows import longest


@lru_cache(maxsize=64)
def plan(size: int, pieces: int) -> tuple[Sends, ...]:
    """Return the rounds of the scatter and of the all-gather."""
    found = []
    for k in reversed(range(rounds(size))):
        child = np.arange(1 << k, size, 2 << k)
        count = np.minimum(1 << k, size - child)
        found.append(Sends(child - (1 << k), child, child, count, adds=False))
    ranks = np.arange(size)
    for i in range(size - 1):
        one = np.ones_like(ranks)
        found.append(Sends(ranks, (ranks + 1) % size, (ranks - i) % size, one))
    return tuple(found)


def one_chunk_each(size: int, length: int, most: int) -> int:
    return size


SCATTER_GATHER = Broadcast(plan, one_chunk_each)


def scatter_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of the scatter from the root, or of the gather."""
    size = job.size
    counts = [min(1 << k, size - (1 << k)) for k in range(rounds(size))]
    lengths = [longest(job.length, size, count) for count in counts]
    return sum(send_seconds(job, rates, length) for length in lengths)


def broadcast_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of the broadcast, an upper bound."""
    chunk = -(-job.length // job.size)
    ring = (job.size - 1) * send_seconds(job, rates, chunk)
    return scatter_seconds(job, rates) + ring


def reduction_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of the reduction, an upper bound."""
    chunk = -(-job.length // job.size)
    ring = (job.size - 1) * reduce_seconds(job, rates, chunk)
    return scatter_seconds(job, rates) + ring
