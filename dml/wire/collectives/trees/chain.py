"""Pipelined broadcast along a chain of ranks, and reduction along it.

    0 ─ piece 0 ─► 1
    0 ─ piece 1 ─► 1 ─ piece 0 ─► 2
    0 ─ piece 2 ─► 1 ─ piece 1 ─► 2 ─ piece 0 ─► 3   …; a reduction: in reverse

In a reduction rank r adds the sum of the ranks above r: x_0 + (x_1 + (x_2 + …)).
For m pieces: m + p - 2 rounds, (p-1)n elements over all ranks: (m + p - 2)(α + n/m·β),
close to nβ for many pieces; and as many n/m·γ in a reduction.
"""

from functools import lru_cache

import numpy as np

from dml.wire.costs.allreduce import Job, Rates, reduce_seconds, send_seconds
from dml.wire.plans.broadcasts import Broadcast, Sends

PIECE = 1 << 16  # bytes


@lru_cache(maxsize=64)
def plan(size: int, pieces: int) -> tuple[Sends, ...]:
    """Return the rounds: rank r sends piece k in round r + k."""
    found = []
    for x in range(pieces + size - 2 if size > 1 else 0):
        source = np.arange(max(0, x - pieces + 1), min(x, size - 2) + 1)
        found.append(Sends(source, source + 1, x - source, np.ones_like(source)))
    return tuple(found)


def pieces_of(size: int, length: int, most: int) -> int:
    return max(1, -(-length // most))


CHAIN = Broadcast(plan, pieces_of)


def pieces_of_job(job: Job) -> tuple[int, int]:
    """Return the number of pieces, and the elements of the longest one."""
    most = max(1, min(job.segment, PIECE) // job.itemsize)
    pieces = pieces_of(job.size, job.length, most)
    return pieces, -(-job.length // pieces)


def broadcast_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of the broadcast; for unequal pieces an upper bound."""
    pieces, longest = pieces_of_job(job)
    return (pieces + job.size - 2) * send_seconds(job, rates, longest)


def reduction_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of the reduction; for unequal pieces an upper bound."""
    pieces, longest = pieces_of_job(job)
    return (pieces + job.size - 2) * reduce_seconds(job, rates, longest)
