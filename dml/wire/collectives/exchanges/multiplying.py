"""Recursive multiplying all-reduce (Ruefenacht 2017): groups exchange all buffers."""

from collections.abc import Iterator, Sequence

import numpy as np

from dml.types import BadInput, Comm, Op, Round
from dml.wire.collectives.segments import SegmentedExchange
from dml.wire.comm.buffers import flat
from dml.wire.comm.plain import as_comm
from dml.wire.comm.tags import Tag
from dml.wire.costs.allreduce import Job, Rates, reduce_seconds, send_seconds
from dml.wire.plans.schedules import full, step
from dml.wire.plans.topology import SEGMENT, Fold

RADIX = 4  # ranks of a group


def multiplying_allreduce(
    comm: Comm, buffer: np.ndarray, op: Op = np.add, radix: int = RADIX
) -> None:
    """Reduce in place over all ranks.

        radix 3     0 ─ 1 ─ 2   3 ─ 4 ─ 5   6 ─ 7 ─ 8     step 0: distance 1
                    0 ─ 3 ─ 6   1 ─ 4 ─ 7   2 ─ 5 ─ 8     step 1: distance 3

    In a step the k ranks of a group send their buffers to each other, in k - 1 rounds.
    Then every rank adds the k buffers in rank order, so that the bits are equal in the
    group. Groups have up to `radix` ranks: radix 2 is a butterfly, radix p one step.
    The product of the sizes of the groups is the largest number up to p without a
    prime factor above `radix`; the first ranks are folded in pairs to this number.
    For p = k^m: (k-1)m rounds, n elements per rank and round, k buffers of memory:
    (k-1)m(α + nβ + nγ).

    Args:
      comm: The ranks.
      buffer: Buffer to reduce.
      op: The reduction.
      radix: Most ranks of a group, 2 or more.
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    folding = smooth(comm.size, radix)
    segmented = SegmentedExchange(comm, buffer, op, Tag.MULTIPLYING)

    def steps(place: int) -> None:
        distance = 1
        for members in factors(folding.power, radix):
            exchange(comm, buffer, op, folding, (distance, members))
            distance *= members

    segmented.folded(buffer, folding, steps)


def exchange(
    comm: Comm, buffer: np.ndarray, op: Op, folding: Fold, group: tuple[int, int]
) -> None:
    """Reduce over a group of places at a distance.

    Args:
      comm: The ranks.
      buffer: Buffer to reduce.
      op: The reduction.
      folding: The folding of the ranks.
      group: Distance of adjacent members, and their number.
    """
    distance, members = group
    place = folding.place(comm.rank)
    own = place // distance % members
    ranks = [
        folding.rank(place + (member - own) * distance) for member in range(members)
    ]
    terms = [np.empty_like(buffer) for _ in range(members)]
    terms[own] = buffer
    for k in range(1, members):
        dest, source = (own + k) % members, (own - k) % members
        tag = Tag.MULTIPLYING
        comm.Sendrecv(buffer, ranks[dest], tag, terms[source], ranks[source], tag)
    # order matters: in rank order the bits are equal on all members
    total = terms[0] if own else buffer.copy()
    for term in terms[1:]:
        comm.Reduce_local(term, total, op)
    buffer[...] = total


def smooth(size: int, radix: int) -> Fold:
    """Return the folding to the largest number without a prime factor above `radix`."""
    if radix < 2:
        raise BadInput(f"expected a radix of 2 or more, got {radix}; pass 2 or more")
    power = size
    while np.prod(factors(power, radix), dtype=np.int64) != power:
        power -= 1
    return Fold(power, size - power)


def factors(places: int, radix: int) -> list[int]:
    """Return factors of a number up to `radix`, the largest first."""
    found = []
    for factor in range(min(radix, places), 1, -1):
        while places % factor == 0:
            found.append(factor)
            places //= factor
    return found


def multiplying(
    size: int,
    length: int,
    itemsize: int = 4,
    segment: int = SEGMENT,
    radix: int = RADIX,
) -> Iterator[Round]:
    """Yield the rounds of `multiplying_allreduce`; segments are those of folding."""
    folding = smooth(size, radix)
    places = np.arange(folding.power)
    ranks = np.array([folding.rank(place) for place in places.tolist()])
    even = ranks[: folding.extra]
    folded = full(folding.extra, length * itemsize)
    if folding.extra:
        yield Round(even + 1, even, folded, True, step(itemsize, segment))
    yield from exchanges(ranks, length * itemsize, factors(folding.power, radix))
    if folding.extra:
        yield Round(even, even + 1, folded, False)


def exchanges(ranks: np.ndarray, nbytes: int, sizes: Sequence[int]) -> Iterator[Round]:
    """Yield the rounds in which groups of these sizes exchange buffers."""
    places, buffers, distance = np.arange(len(ranks)), full(len(ranks), nbytes), 1
    for members in sizes:
        own = places // distance % members
        for k in range(1, members):
            dest = places + ((own + k) % members - own) * distance
            reductions = members - 1 if k == members - 1 else 0
            yield Round(ranks, ranks[dest], buffers, reductions)
        distance *= members


def multiplying_seconds(job: Job, rates: Rates, radix: int = RADIX) -> float:
    """Return the seconds of `multiplying_allreduce`; exact on the uniform network."""
    folding, n = smooth(job.size, radix), job.length
    total = exchange_seconds(job, rates, factors(folding.power, radix))
    if folding.extra:
        total += reduce_seconds(job, rates, n) + send_seconds(job, rates, n)
    return total


def exchange_seconds(job: Job, rates: Rates, groups: Sequence[int]) -> float:
    """Return the seconds of exchanges in groups of these sizes, step by step."""
    reduced = rates.gamma * job.length * job.itemsize
    message = send_seconds(job, rates, job.length)
    return sum((members - 1) * (message + reduced) for members in groups)
