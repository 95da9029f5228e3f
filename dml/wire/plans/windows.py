"""All-gathers in which every rank sends a window of chunks: pure arithmetic.

    chunks     0  1  2  3  4  5        on a circle; rank r begins with its own chunk
    rank 0     ██ ██                   and, after some steps, has a window of chunks
    rank 1        ██ ██
    …

In a step every rank sends as many chunks as every other one. In reverse order, with
senders and receivers exchanged, the steps are a reduce-scatter: a rank sends its sums
of the chunks that it would receive, and adds the sums of those that it would send.
Every chunk is then reduced along the tree by which the all-gather distributes it.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from dml.types import Round
from dml.wire.plans.schedules import chunk_bytes, folded, full, step
from dml.wire.plans.topology import SEGMENT, Fold, fold


class Step(NamedTuple):
    """A step of an all-gather; arrays have an element for every rank."""

    dest: np.ndarray  # rank to send to
    source: np.ndarray  # rank to receive from
    start: np.ndarray  # position of the first chunk that is sent
    width: int  # number of chunks that are sent


class WindowsPlan(NamedTuple):
    """An all-gather of p chunks."""

    place: np.ndarray  # by rank: position of its chunk on the circle
    steps: tuple[Step, ...]


class Pattern(NamedTuple):
    """An all-gather for any number of ranks.

    Attributes:
      plan: Number of ranks -> plan.
      counts: Number of ranks -> number of chunks that a rank sends in each step.
      power: Whether the plan needs a power of two of ranks; others are folded.
    """

    plan: Callable[[int], WindowsPlan]
    counts: Callable[[int], Sequence[int]]
    power: bool = False

    def fold(self, size: int) -> Fold:
        """Return the folding of `size` ranks, which may have no pairs."""
        return fold(size) if self.power else Fold(size, 0)


class Line(NamedTuple):
    """Places on a line of a torus; a `Fold` without pairs."""

    ranks: tuple[int, ...]  # rank at each place

    @property
    def power(self) -> int:
        return len(self.ranks)

    def place(self, rank: int) -> int:
        """Return the place of a rank."""
        return self.ranks.index(rank)

    def rank(self, place: int) -> int:
        """Return the rank at a place."""
        return self.ranks[place]


class Move(NamedTuple):
    """A step of one rank."""

    dest: int
    source: int
    sent: int  # position of the first chunk that is sent
    received: int  # position of the first chunk that is received
    width: int  # number of chunks that are sent, and that are received


@lru_cache(maxsize=1024)
def moves(pattern: Pattern, size: int, rank: int) -> tuple[Move, ...]:
    """Return the steps of a rank in the all-gather of `size` ranks."""
    found = []
    for dest, source, start, count in pattern.plan(size).steps:
        sender = int(source[rank])
        found.append(
            Move(int(dest[rank]), sender, int(start[rank]), int(start[sender]), count)
        )
    return tuple(found)


def shifted(size: int, distance: int, start: int, count: int) -> Step:
    """Return the step in which r sends chunks from r + start on to r + distance."""
    ranks = np.arange(size)
    return Step(
        (ranks + distance) % size,
        (ranks - distance) % size,
        (ranks + start) % size,
        count,
    )


def nested(size: int, partners: Sequence[np.ndarray]) -> WindowsPlan:
    """Return the all-gather of 2^k ranks by exchanges, partners[k-1] to partners[0].

    After the exchange with partners[s], all ranks that are connected by partners[s], …,
    partners[k-1] have the same 2^(k-s) chunks, at adjacent positions. This requires
    that partners[s] maps each set of ranks that are connected by the later ones onto
    another set.
    """
    group = np.arange(size)  # by rank: the smallest rank of its set
    place = np.zeros_like(group)
    for exchanged, partner in enumerate(reversed(partners)):
        place += (group > group[partner]) << exchanged
        group = np.minimum(group, group[partner])
    steps = []
    for exchanged, partner in enumerate(reversed(partners)):
        count = 1 << exchanged
        steps.append(Step(partner, partner, place & -count, count))
    return WindowsPlan(place, tuple(steps))


def longest(length: int, parts: int, count: int) -> int:
    """Return the most elements of `count` adjacent chunks of `topology.chunks`."""
    short, longer = divmod(length, parts)
    return count * short + min(count, longer)


# Schedules: arguments as in `plans.schedules`.


def gather_rounds(
    pattern: Pattern, size: int, length: int, itemsize: int = 4
) -> Iterator[Round]:
    """Yield the rounds of the all-gather of the chunks of all ranks."""
    places = Places.build(pattern, size, length, itemsize)
    even, odd, own = places.even, places.odd, places.own
    if len(odd):
        yield Round(odd, even, own[odd], False)
    yield from inner_gather(places.plan, places.ranks, places.nbytes)
    if len(odd):
        yield Round(even, odd, full(len(odd), length * itemsize), False)


def scatter_rounds(
    pattern: Pattern,
    size: int,
    length: int,
    itemsize: int = 4,
    segment: int = SEGMENT,
) -> Iterator[Round]:
    """Yield the rounds of the reduce-scatter: those of the all-gather in reverse."""
    places, segment = (
        Places.build(pattern, size, length, itemsize),
        step(itemsize, segment),
    )
    even, odd, own = places.even, places.odd, places.own
    if len(odd):
        yield Round(odd, even, full(len(odd), length * itemsize), True, segment)
    gathering = list(inner_gather(places.plan, places.ranks, places.nbytes))
    for entry in reversed(gathering):
        yield Round(entry.dest, entry.source, entry.nbytes, True, segment)
    if len(odd):
        yield Round(even, odd, own[odd], False)


class Places(NamedTuple):
    """The places of a plan, after folding; arrays are by place, except `own`."""

    plan: WindowsPlan
    ranks: np.ndarray  # rank at the place
    nbytes: np.ndarray  # bytes of its chunk, or of the chunks of its pair
    own: np.ndarray  # by rank: bytes of its chunk
    even: np.ndarray  # ranks of the pairs
    odd: np.ndarray

    @staticmethod
    def build(pattern: Pattern, size: int, length: int, itemsize: int) -> "Places":
        folding = pattern.fold(size)
        ranks = np.array([folding.rank(place) for place in range(folding.power)])
        own = chunk_bytes(length, size, itemsize)
        even = ranks[: folding.extra]
        nbytes = own[ranks]
        nbytes[: folding.extra] += own[even + 1]
        return Places(pattern.plan(folding.power), ranks, nbytes, own, even, even + 1)


def allreduce_rounds(
    pattern: Pattern,
    size: int,
    length: int,
    itemsize: int = 4,
    segment: int = SEGMENT,
) -> Iterator[Round]:
    """Yield the rounds of a reduce-scatter and an all-gather; all ranks have all sums.

    Chunks have the order of positions, so that a window is one or two messages' memory.
    """
    segment = step(itemsize, segment)
    power, extra = pattern.fold(size)
    _, ranks, folding, unfolding = folded(size, length * itemsize)
    if not extra:
        ranks, folding, unfolding = np.arange(size), [], []
    yield from (entry._replace(segment=segment) for entry in folding)
    plan = pattern.plan(power)
    by_position = chunk_bytes(length, power, itemsize)
    gathering = list(inner_gather(plan, ranks, by_position[plan.place]))
    for entry in reversed(gathering):
        yield Round(entry.dest, entry.source, entry.nbytes, True, segment)
    yield from gathering
    yield from unfolding


def lines_through(rank: int, sides: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the ranks of the line through a rank along each dimension, the last first.

    sides: Sides of the torus; rank = its coordinates, the last one fastest.
    """
    below = 1
    for side in reversed(sides):
        first = rank - rank // below % side * below
        yield tuple(range(first, first + side * below, below))
        below *= side


def line_lengths(
    sides: Sequence[int], length: int, owned: Callable[[int, int], np.ndarray]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the reduce-scatters along the dimensions of a torus, the last one first.

    Lines with chunks of one length are yielded together: the ranks of each line, lines
    x side, and the elements that the places of a line own afterwards.

    Args:
      sides: Sides of the torus; rank = its coordinates, the last one fastest.
      length: Elements of the buffer.
      owned: (elements, side) -> elements that each place of a line owns.
    """
    ranks = np.arange(math.prod(sides)).reshape(sides)
    lengths = np.full(ranks.size, length)  # by rank: elements of its chunk
    for dim in reversed(range(ranks.ndim)):
        lines = np.moveaxis(ranks, dim, -1).reshape(-1, ranks.shape[dim])
        before = lengths[lines[:, 0]]
        for each in np.unique(before).tolist():
            found = owned(each, lines.shape[1])
            chosen = lines[before == each]
            lengths[chosen] = found
            yield chosen, found


def along_rounds(
    pattern: Pattern,
    size: int,
    length: int,
    itemsize: int = 4,
    segment: int = SEGMENT,
    sides: Sequence[int] = (),
) -> Iterator[Round]:
    """Yield the rounds of `steps.run.allreduce_along`."""
    segment, phases = step(itemsize, segment), []
    parts = partial(chunk_bytes, itemsize=1)
    for lines, owned in line_lengths(sides or (size,), length, parts):
        copies, rounds = len(lines), []
        plan = pattern.plan(len(owned))
        places = np.arange(len(owned))
        for one in inner_gather(plan, places, owned[plan.place] * itemsize):
            source, dest = lines[:, one.source].reshape(-1), lines[:, one.dest]
            nbytes = np.tile(one.nbytes, copies)
            rounds.append(Round(source, dest.reshape(-1), nbytes, False))
        phases.append(rounds)
    for rounds in phases:
        for one in reversed(rounds):
            yield Round(one.dest, one.source, one.nbytes, True, segment)
    for rounds in reversed(phases):
        yield from rounds


def inner_gather(
    plan: WindowsPlan, ranks: np.ndarray, nbytes: np.ndarray
) -> Iterator[Round]:
    """Yield the rounds of a plan.

    Args:
      plan: The plan.
      ranks: By place in the plan: the rank.
      nbytes: By place in the plan: bytes of its chunk.
    """
    by_position = np.empty_like(nbytes)
    by_position[plan.place] = nbytes
    edges = np.concatenate([[0], np.cumsum(np.tile(by_position, 2))])
    for dest, _, start, count in plan.steps:
        yield Round(ranks, ranks[dest], edges[start + count] - edges[start], False)
