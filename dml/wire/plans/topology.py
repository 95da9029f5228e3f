"""Partners of each round, and chunks and segments of a buffer: pure arithmetic.

A buffer is divided into chunks, one per rank, and messages into segments of equal size.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

SEGMENT = 1 << 18  # bytes of a segment, reduced while the next one is received
SMALL = 1 << 15  # bytes up to which every rank reduces the full buffer of `shared`
STAGE = 1 << 19  # bytes of a plain buffer that are copied to shared memory at once


@lru_cache(maxsize=256)
def chunks(length: int, parts: int) -> tuple[slice, ...]:
    """Divide `length` into parts; the first length % parts are longer by 1."""
    short, longer = divmod(length, parts)
    edges = [part * short + min(part, longer) for part in range(parts + 1)]
    return tuple(slice(*pair) for pair in pairwise(edges))


def segments(length: int, step: int) -> Iterator[slice]:
    """Divide `length` into segments of length `step`; the last may be shorter.

    A length of 0 gives one empty segment, because an empty chunk is also sent.
    """
    for start in range(0, length or 1, step):
        yield slice(start, min(start + step, length))


def rounds(size: int) -> int:
    """Return ⌈lg size⌉, the number of rounds of a tree."""
    return (size - 1).bit_length()


def children(rank: int, size: int) -> Iterator[int]:
    """Yield a rank's children in the binomial tree with root 0, nearest first."""
    step = 1
    while step < size and not rank & step:
        if rank + step < size:
            yield rank + step
        step *= 2


def parent(rank: int) -> int:
    """Return a rank's parent in the binomial tree: the rank without its lowest bit."""
    return rank & (rank - 1)


class Fold(NamedTuple):
    """The folding of p ranks to a power of two; the first 2·extra ranks are pairs.

    The odd rank of a pair sends its buffer to the even rank before it, and waits for
    the result. The other ranks have the places 0 … power-1 in the reduction.
    """

    power: int  # largest power of two up to p, the number of places
    extra: int  # number of pairs

    def place(self, rank: int) -> int:
        """Return the place of a rank; -1 for a rank that waits."""
        if rank >= 2 * self.extra:
            return rank - self.extra
        return -1 if rank % 2 else rank // 2

    def rank(self, place: int) -> int:
        """Return the rank at a place."""
        return place * 2 if place < self.extra else place + self.extra


def fold(size: int) -> Fold:
    """Return the folding of `size` ranks."""
    power = 1 << (size.bit_length() - 1)
    return Fold(power, size - power)


class Half(NamedTuple):
    """A round of recursive halving: send one half to the partner, keep the other."""

    partner: int  # place of the partner
    keep: slice  # half that is kept and reduced
    send: slice  # half that is sent


def halving(place: int, power: int, length: int) -> list[Half]:
    """Return the rounds of recursive halving; in reverse they are an all-gather.

    Args:
      place: Place of the rank; see `Fold`.
      power: Number of places.
      length: Number of buffer elements.
    """
    low, high, step = 0, length, 1
    rounds = []
    while step < power:
        middle = (low + high) // 2
        lower, upper = slice(low, middle), slice(middle, high)
        keep, send = (upper, lower) if place & step else (lower, upper)
        rounds.append(Half(place ^ step, keep, send))
        low, high = keep.start, keep.stop
        step *= 2
    return rounds


def groups(hosts: Sequence[int], width: int = 0) -> tuple[tuple[int, ...], ...]:
    """Return the ranks of each group.

    Args:
      hosts: Host of each rank.
      width: Number of consecutive ranks in a group; 0 makes each host a group.
    """
    size = len(hosts)
    if width:
        starts = range(0, size, width)
        return tuple(tuple(range(s, min(s + width, size))) for s in starts)
    by_host: dict[int, list[int]] = {}
    for rank, host in enumerate(hosts):
        by_host.setdefault(host, []).append(rank)
    return tuple(map(tuple, by_host.values()))


class Level(NamedTuple):
    """The groups of one level of a hierarchy."""

    members: tuple[tuple[int, ...], ...]  # of each group
    hosts: bool  # whether the members of a group are on one host

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the number of members of each group."""
        return tuple(map(len, self.members))


def levels(hosts: Sequence[int], group: int | Sequence[int]) -> list[Level]:
    """Return the levels of a hierarchy: ranks, groups of ranks, groups of groups, …

    Args:
      hosts: Host of each rank.
      group: Number of consecutive members in a group, for each level, as in `groups`.
    """
    found = []
    for width in (group,) if isinstance(group, int) else group:
        members = groups(hosts, width)
        alike = all(len({hosts[one] for one in group}) == 1 for group in members)
        found.append(Level(members, alike))
        hosts = [hosts[group[0]] for group in members]
    return found
