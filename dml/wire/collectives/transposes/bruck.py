"""Bruck's all-to-all (Bruck 1997): few messages, each with parts of many ranks."""

from collections.abc import Iterator

import numpy as np

from dml.types import BadInput, Comm, Round
from dml.wire.collectives.transposes.pairwise import rows
from dml.wire.comm.tags import Tag
from dml.wire.costs.allreduce import Job, Rates, send_seconds
from dml.wire.plans.schedules import full
from dml.wire.plans.topology import SEGMENT


def bruck_all_to_all(comm: Comm, buffer: np.ndarray, radix: int = 2) -> None:
    """Send part q of the buffer to rank q; part q becomes that of rank q, in place.

        parts by distance     0 1 2 3 4 5 6 7
        round 0: to r + 1       1   3   5   7     distances with bit 0
        round 1: to r + 2         2 3     6 7     distances with bit 1
        round 2: to r + 4             4 5 6 7     distances with bit 2

    A part for the rank at distance k travels the bits of k, one after another, by way
    of other ranks. Any number of ranks; for short parts. With radix r the distances are
    digits of k times 1, r, r², …: fewer elements in more rounds; radix p is the
    pairwise all-to-all.
    (r-1)⌈log_r p⌉ rounds or fewer; for p = r^k k(r-1)/r·pn elements over all ranks:
    k(r-1)(α + n/r·β).

    Args:
      comm: The ranks.
      buffer: p parts of equal length, in rank order.
      radix: Base r of the digits, 2 or more.
    """
    comm, _, parts = rows(comm, buffer)
    rank, size, tag = comm.rank, comm.size, Tag.ALL_TO_ALL
    ranks = np.arange(size)
    held = parts[(rank + ranks) % size]  # by distance that is left or was travelled
    for distances, step in hops(size, radix):
        sent = held[distances]
        received = np.empty_like(sent)
        dest, source = (rank + step) % size, (rank - step) % size
        comm.Sendrecv(sent.reshape(-1), dest, tag, received.reshape(-1), source, tag)
        held[distances] = received
    parts[(rank - ranks) % size] = held


def hops(size: int, radix: int = 2) -> list[tuple[np.ndarray, int]]:
    """Return the distances of the parts that move in each round, and how far."""
    if radix < 2:
        raise BadInput(f"expected a radix of 2 or more, got {radix}; pass 2 or more")
    distances, found, weight = np.arange(size), [], 1
    while weight < size:
        digits = distances // weight % radix
        for digit in range(1, digits.max() + 1):
            found.append((np.flatnonzero(digits == digit), digit * weight))
        weight *= radix
    return found


def bruck(
    size: int, length: int, itemsize: int = 4, segment: int = SEGMENT, radix: int = 2
) -> Iterator[Round]:
    """Yield the rounds of `bruck_all_to_all`; length: elements of all parts."""
    ranks = np.arange(size)
    for distances, step in hops(size, radix):
        nbytes = full(size, len(distances) * (length // size) * itemsize)
        yield Round(ranks, (ranks + step) % size, nbytes, False)


def bruck_seconds(job: Job, rates: Rates, radix: int = 2) -> float:
    """Return the seconds of `bruck_all_to_all`; exact on the uniform network."""
    part = job.length // job.size
    lengths = [len(moved) * part for moved, _ in hops(job.size, radix)]
    return sum(send_seconds(job, rates, length) for length in lengths)
