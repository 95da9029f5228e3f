"""Who speaks with whom in round k, about which part of a buffer: pure arithmetic."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

SEGMENT = 1 << 18  # bytes: what is added while the next segment is under way
SMALL = 1 << 15  # bytes in shared memory up to which everyone adds everything
STAGE = 1 << 19  # bytes of a plain buffer that pass through shared memory at once


@lru_cache(maxsize=256)
def chunks(length: int, parts: int) -> tuple[slice, ...]:
    """Cut `length` into parts, the first length mod parts of them one longer."""
    short, longer = divmod(length, parts)
    edges = [part * short + min(part, longer) for part in range(parts + 1)]
    return tuple(slice(*pair) for pair in pairwise(edges))


def segments(length: int, step: int) -> Iterator[slice]:
    """Cut `length` into steps, the last one shorter; an empty one if there is nothing.

    An empty chunk is still a message: its receiver counts on it.
    """
    for start in range(0, length or 1, step):
        yield slice(start, min(start + step, length))


def rounds(size: int) -> int:
    """⌈lg size⌉"""
    return (size - 1).bit_length()


def children(rank: int, size: int) -> Iterator[int]:
    """The binomial tree's children of rank, nearest first; its root is rank 0."""
    step = 1
    while step < size and not rank & step:
        if rank + step < size:
            yield rank + step
        step *= 2


def parent(rank: int) -> int:
    """The binomial tree's parent: rank without its lowest bit."""
    return rank & (rank - 1)


class Fold(NamedTuple):
    """How p ranks become a power of two: the first 2·extra ranks pair up.

    Odd ones among them hand everything to the even one before them, and sleep.
    """

    power: int  # ranks that take part
    extra: int  # pairs

    def place(self, rank: int) -> int:
        """The place of a rank that takes part, 0 … power-1; -1 for one that sleeps."""
        if rank >= 2 * self.extra:
            return rank - self.extra
        return -1 if rank % 2 else rank // 2

    def rank(self, place: int) -> int:
        return place * 2 if place < self.extra else place + self.extra


def fold(size: int) -> Fold:
    power = 1 << (size.bit_length() - 1)
    return Fold(power, size - power)


class Half(NamedTuple):
    """A round of recursive halving: exchange with `place`, keep one part, give one."""

    place: int
    keep: slice
    give: slice


def halving(place: int, power: int, length: int) -> list[Half]:
    """Rounds of recursive halving, nearest partner first; mirrored, they gather."""
    low, high, step = 0, length, 1
    rounds = []
    while step < power:
        middle = (low + high) // 2
        lower, upper = slice(low, middle), slice(middle, high)
        keep, give = (upper, lower) if place & step else (lower, upper)
        rounds.append(Half(place ^ step, keep, give))
        low, high = keep.start, keep.stop
        step *= 2
    return rounds


def groups(hosts: Sequence[int], width: int = 0) -> tuple[tuple[int, ...], ...]:
    """The ranks of each group: those of one host, or `width` neighbours."""
    size = len(hosts)
    if width:
        starts = range(0, size, width)
        return tuple(tuple(range(s, min(s + width, size))) for s in starts)
    found: dict[int, list[int]] = {}
    for rank, host in enumerate(hosts):
        found.setdefault(host, []).append(rank)
    return tuple(map(tuple, found.values()))
