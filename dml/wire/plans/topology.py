"""Partners of each round, and chunks and segments of a buffer: pure arithmetic."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

SEGMENT = 1 << 18  # bytes of a segment, reduced while the next one is received
SMALL = 1 << 15  # bytes up to which every rank adds up all buffers in shared memory
STAGE = 1 << 19  # bytes of a plain buffer that are copied to shared memory at once


@lru_cache(maxsize=256)
def chunks(length: int, parts: int) -> tuple[slice, ...]:
    """Divide `length` into parts; the first length % parts of them are one longer."""
    short, longer = divmod(length, parts)
    edges = [part * short + min(part, longer) for part in range(parts + 1)]
    return tuple(slice(*pair) for pair in pairwise(edges))


def segments(length: int, step: int) -> Iterator[slice]:
    """Divide `length` into steps, the last one shorter.

    A length of 0 gives one empty segment, because an empty chunk is still a message.
    """
    for start in range(0, length or 1, step):
        yield slice(start, min(start + step, length))


def rounds(size: int) -> int:
    """Return ⌈lg size⌉, the rounds of a tree."""
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
    """The reduction of p ranks to a power of two: the first 2·extra ranks are pairs.

    The odd rank of a pair sends its buffer to the even rank before it, and waits for
    the result.
    """

    power: int  # number of ranks that take part in the reduction
    extra: int  # number of pairs

    def place(self, rank: int) -> int:
        """Return the place of a rank, 0 … power-1; -1 for a rank that waits."""
        if rank >= 2 * self.extra:
            return rank - self.extra
        return -1 if rank % 2 else rank // 2

    def rank(self, place: int) -> int:
        """Return the rank at a place."""
        return place * 2 if place < self.extra else place + self.extra


def fold(size: int) -> Fold:
    """Return the fold of `size` ranks to the largest power of two."""
    power = 1 << (size.bit_length() - 1)
    return Fold(power, size - power)


class Half(NamedTuple):
    """A round of recursive halving: keep one part, send the other to the partner."""

    partner: int  # place of the partner
    keep: slice
    send: slice


def halving(place: int, power: int, length: int) -> list[Half]:
    """Return the rounds of recursive halving; reversed, they are an all-gather."""
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
    """Return the ranks of each group: `width` neighbours, or by host if width is 0."""
    size = len(hosts)
    if width:
        starts = range(0, size, width)
        return tuple(tuple(range(s, min(s + width, size))) for s in starts)
    by_host: dict[int, list[int]] = {}
    for rank, host in enumerate(hosts):
        by_host.setdefault(host, []).append(rank)
    return tuple(map(tuple, by_host.values()))
