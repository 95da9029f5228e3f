"""Broadcast on a circulant graph (Träff 2024), and reduction in reverse.

    p = 5, skips 1 2 3, 3 pieces                         skip
    round 0   0 ─0─► 2                                   2
    round 1   0 ─1─► 3                                   3
    round 2   0 ─2─► 1   2 ─0─► 3   3 ─1─► 4             1
    round 3   0 ─2─► 2   2 ─0─► 4   4 ─1─► 1             2
    round 4   0 ─2─► 3   3 ─0─► 1   4 ─1─► 2   1 ─2─► 4  3

In a round with skip s rank r sends to r + s and receives from r - s (mod p). In a cycle
of q = ⌈lg p⌉ rounds, one for each skip, rank 0 sends q new pieces. A rank receives one
of them, its base piece, in the round of the last skip of the path to it; the other
rounds bring pieces of the cycle before. No rank is folded.
For m pieces: m - 1 + ⌈lg p⌉ rounds, the least number if a rank sends and receives one
piece in a round; (p-1)n elements over all ranks: (m - 1 + ⌈lg p⌉)(α + n/m·β), and as
many n/m·γ in a reduction.
"""

from functools import lru_cache

import numpy as np

from dml.wire.collectives.steps.circulant import skips
from dml.wire.collectives.trees.chain import pieces_of, pieces_of_job
from dml.wire.costs.allreduce import Job, Rates, reduce_seconds, send_seconds
from dml.wire.plans.broadcasts import Broadcast, Sends
from dml.wire.plans.topology import rounds


@lru_cache(maxsize=64)
def received_pieces(size: int) -> np.ndarray:
    """Return the piece that each rank but 0 receives in each round of a cycle.

    Pieces are numbered from the first one of a cycle; those before are negative.
    """
    return np.array([received_by(rank, skips(size)) for rank in range(1, size)])


def received_by(rank: int, skip: list[int]) -> list[int]:
    """Return the piece that a rank receives in each round of a cycle.

    The piece that rank 0 sends in round k has number k. A path of skips from rank 0 to
    the sender, or as near to it as possible, has the number of its smallest skip; each
    round has a path with another one. The search in depth prefers large skips, and goes
    around the ranks twice, because pieces of the cycle before have paths, too.
    """
    last = len(skip) - 1  # also the number of rounds of a cycle
    base = base_piece(rank, skip)
    rest, found = [k for k in range(last, -1, -1) if k != base], list[int]()
    target, bounds = skip[last] + rank, [*skip, 2 * skip[last]]

    def search(start: int, end: int, largest: int) -> None:
        """Extend a path from `start` by a skip, to less than `end`."""
        for k in [k for k in rest if k <= largest]:
            at = start + skip[k]
            if k in rest and at < end and at <= target - bounds[len(found)]:
                if at <= target - bounds[len(found) + 1]:
                    search(at, end, k - 1)
                if len(found) == last or start > target - bounds[len(found) + 1]:
                    return
                end = at
                found.append(base if k == last else k - last)
                rest.remove(k)
                if len(found) == last:
                    return

    search(0, 2 * skip[last], last)
    return found


def base_piece(rank: int, skip: list[int]) -> int:
    """Return the number of the last skip on the path from rank 0 to another rank."""
    at = 0
    for k in range(len(skip) - 2, -1, -1):
        if at + skip[k] <= rank:
            at += skip[k]
        if at == rank:
            return k
    raise AssertionError


@lru_cache(maxsize=64)
def plan(size: int, pieces: int) -> tuple[Sends, ...]:
    """Return the rounds; the last one is the last of a cycle."""
    cycle, found = rounds(size), []
    if size == 1:
        return ()
    skip, received = np.array(skips(size)), received_pieces(size)
    dest = np.arange(1, size)
    has_last = np.zeros(size - 1, bool)
    number = pieces - 1 + cycle
    early = -number % cycle  # rounds of the first cycle that are left out
    for x in range(early, early + number):
        k = x % cycle
        start = x - k - early  # number of the first piece of the cycle
        # in place of pieces beyond the last, ranks receive the last one if they lack it
        piece = np.minimum(received[:, k] + start, pieces - 1)
        sent = (piece >= 0) & ~((piece == pieces - 1) & has_last)
        has_last |= piece == pieces - 1
        to = dest[sent]
        found.append(Sends((to - skip[k]) % size, to, piece[sent], np.ones_like(to)))
    return tuple(found)


CIRCULANT_TREES = Broadcast(plan, pieces_of)


def broadcast_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of the broadcast; for unequal pieces an upper bound."""
    pieces, longest = pieces_of_job(job)
    return (pieces - 1 + rounds(job.size)) * send_seconds(job, rates, longest)


def reduction_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of the reduction; for unequal pieces an upper bound."""
    pieces, longest = pieces_of_job(job)
    return (pieces - 1 + rounds(job.size)) * reduce_seconds(job, rates, longest)
