"""Bruck's all-to-all (Bruck 1997): ⌈lg p⌉ messages, each with parts of many ranks."""

from collections.abc import Iterator

import numpy as np

from dml.types import Comm, Round
from dml.wire.collectives.transposes.pairwise import rows
from dml.wire.comm.tags import Tag
from dml.wire.costs.allreduce import Job, Rates, send_seconds
from dml.wire.plans.schedules import full
from dml.wire.plans.topology import SEGMENT


def bruck_all_to_all(comm: Comm, buffer: np.ndarray) -> None:
    """Send part q of the buffer to rank q; part q becomes that of rank q, in place.

        parts by distance     0 1 2 3 4 5 6 7
        round 0: to r + 1       1   3   5   7     distances with bit 0
        round 1: to r + 2         2 3     6 7     distances with bit 1
        round 2: to r + 4             4 5 6 7     distances with bit 2

    A part for the rank at distance k travels the bits of k, one after another, by way
    of other ranks. Any number of ranks; for short parts.
    ⌈lg p⌉ rounds; for p = 2^k lg p·pn/2 elements over all ranks: lg p(α + n/2·β).

    Args:
      comm: The ranks.
      buffer: p parts of equal length, in rank order.
    """
    comm, _, parts = rows(comm, buffer)
    rank, size, tag = comm.rank, comm.size, Tag.ALL_TO_ALL
    ranks = np.arange(size)
    held = parts[(rank + ranks) % size]  # by distance that is left or was travelled
    for distances, step in hops(size):
        sent = held[distances]
        received = np.empty_like(sent)
        dest, source = (rank + step) % size, (rank - step) % size
        comm.Sendrecv(sent.reshape(-1), dest, tag, received.reshape(-1), source, tag)
        held[distances] = received
    parts[(rank - ranks) % size] = held


def hops(size: int) -> list[tuple[np.ndarray, int]]:
    """Return the distances of the parts that move in each round, and how far."""
    distances = np.arange(size)
    steps = [1 << k for k in range((size - 1).bit_length())]
    return [(np.flatnonzero(distances & step), step) for step in steps]


def bruck(
    size: int, length: int, itemsize: int = 4, segment: int = SEGMENT
) -> Iterator[Round]:
    """Yield the rounds of `bruck_all_to_all`; length: elements of all parts."""
    ranks = np.arange(size)
    for distances, step in hops(size):
        nbytes = full(size, len(distances) * (length // size) * itemsize)
        yield Round(ranks, (ranks + step) % size, nbytes, False)


def bruck_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of `bruck_all_to_all`; exact on the uniform network."""
    lengths = [len(moved) * (job.length // job.size) for moved, _ in hops(job.size)]
    return sum(send_seconds(job, rates, length) for length in lengths)
