"""All-reduces as data: source, destination and bytes of every message, by round.

Each function yields the rounds of the all-reduce of the same name in
`wire.collectives`, message for message. `sim.evaluate` computes virtual seconds from
them; `words_sent` counts the words (buffer elements) that they send. Common arguments:

size: Number of ranks.
length: Number of buffer elements.
itemsize: Bytes of an element.
segment: Bytes of a segment; one segment is reduced while the next is received.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from dml.types import Round
from dml.wire.plans.topology import SEGMENT, fold


def star(
    size: int, length: int, itemsize: int = 4, segment: int = SEGMENT
) -> Iterator[Round]:
    """Yield the reduction at rank 0, one peer per round, and the sends of the sum."""
    root, nbytes = np.zeros(1, np.int64), full(1, length * itemsize)
    for peer in range(1, size):
        yield Round(full(1, peer), root, nbytes, True, step(itemsize, segment))
    for peer in range(1, size):
        yield Round(root, full(1, peer), nbytes, False)


def tree(
    size: int, length: int, itemsize: int = 4, segment: int = SEGMENT
) -> Iterator[Round]:
    """Yield a reduction up a binomial tree, nearest children first, and a broadcast."""
    reaches = [1 << k for k in range((size - 1).bit_length())]
    for reach in reaches:
        child = np.arange(reach, size, 2 * reach)
        nbytes = full(len(child), length * itemsize)
        yield Round(child, child - reach, nbytes, True, step(itemsize, segment))
    for reach in reversed(reaches):
        child = np.arange(reach, size, 2 * reach)
        yield Round(child - reach, child, full(len(child), length * itemsize), False)


def butterfly(
    size: int, length: int, itemsize: int = 4, segment: int = SEGMENT
) -> Iterator[Round]:
    """Yield exchanges of all elements between places that differ by 1, 2, 4, …"""
    places, ranks, folding, unfolding = folded(size, length * itemsize)
    segment = step(itemsize, segment)
    yield from (fold_round._replace(segment=segment) for fold_round in folding)
    nbytes = full(len(places), length * itemsize)
    reach = 1
    while reach < len(places):
        yield Round(ranks, ranks[places ^ reach], nbytes, True, segment)
        reach *= 2
    yield from unfolding


def halving_doubling(
    size: int, length: int, itemsize: int = 4, segment: int = SEGMENT
) -> Iterator[Round]:
    """Yield exchanges of 1/2, 1/4, … of the buffer, then the reverse, which copies."""
    places, ranks, folding, unfolding = folded(size, length * itemsize)
    segment = step(itemsize, segment)
    yield from (fold_round._replace(segment=segment) for fold_round in folding)
    low, high = np.zeros(1, np.int64), full(1, length)
    kept = []  # for each reach: bytes that a place keeps, by the last bits of the place
    reach = 1
    while reach < len(places):
        middle = (low + high) // 2
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
        kept.append((high - low) * itemsize)
        partner = places ^ reach
        nbytes = kept[-1][partner & (2 * reach - 1)]
        yield Round(ranks, ranks[partner], nbytes, True, segment)
        reach *= 2
    for keep in reversed(kept):
        reach //= 2
        nbytes = keep[places & (2 * reach - 1)]
        yield Round(ranks, ranks[places ^ reach], nbytes, False)
    yield from unfolding


def ring(
    size: int, length: int, itemsize: int = 4, segment: int = SEGMENT
) -> Iterator[Round]:
    """Yield a reduce-scatter of p chunks around a ring, and an all-gather."""
    # rank c - 1 ends with chunk c
    owned = np.roll(chunk_bytes(length, size, itemsize), -1)
    yield from ring_rounds([range(size)], owned, step(itemsize, segment))
    yield from ring_rounds([range(size)], owned, None)


def hierarchical(
    size: int,
    length: int,
    itemsize: int = 4,
    segment: int = SEGMENT,
    members: Sequence[Sequence[int]] = (),
    outside: Callable[..., Iterator[Round]] = ring,
) -> Iterator[Round]:
    """Yield a reduce-scatter in groups, an all-reduce across them, and an all-gather.

    Every rank is on its own host: groups on one host reduce in shared memory instead.

    Args:
      size: Number of ranks.
      length: Number of buffer elements.
      itemsize: Bytes of an element.
      segment: Bytes of a segment.
      members: Ranks of each group, as from `topology.groups`; () is one group.
      outside: Schedule of the all-reduce between the l-th ranks of all groups; see
        `nested`.
    """
    members = members or [range(size)]
    owners = min(map(len, members))
    owned = chunk_bytes(length, owners, itemsize)
    yield from ring_rounds(members, owned, step(itemsize, segment))
    ranks_GxO = np.array([list(group[:owners]) for group in members])
    for nbytes in np.unique(owned).tolist():
        owners_GxL = ranks_GxO[:, owned == nbytes]  # owners of chunks of one size
        copies = owners_GxL.shape[1]
        for group_round in outside(len(members), nbytes // itemsize, itemsize, segment):
            yield group_round._replace(
                source=owners_GxL[group_round.source].reshape(-1),
                dest=owners_GxL[group_round.dest].reshape(-1),
                nbytes=np.repeat(group_round.nbytes, copies),
            )
    yield from ring_rounds(members, owned, None)


def nested(
    members: Sequence[Sequence[Sequence[int]]],
    outside: Callable[..., Iterator[Round]] = ring,
) -> Callable[..., Iterator[Round]]:
    """Return the schedule of an all-reduce of several levels, from the inside.

    Args:
      members: Members of each group, for each level; see `topology.levels`.
      outside: Schedule of the all-reduce across the groups of the last level.
    """
    for groups in reversed(members):
        outside = partial(hierarchical, members=groups, outside=outside)
    return outside


def ring_rounds(
    members: Sequence[Sequence[int]], owned: np.ndarray, segment: int | None
) -> Iterator[Round]:
    """Yield the rounds of a ring reduce-scatter or all-gather, in all groups at once.

    Rank l of a group ends with chunk l; ranks without a chunk send empty messages.
    If all groups and all chunks are equal in size, the rounds are one Round that is
    repeated.

    Args:
      members: Ranks of each group.
      owned: Bytes of each chunk.
      segment: Bytes of a segment of a reduce-scatter; None for an all-gather.
    """
    sizes = np.array([len(group) for group in members])
    ranks = np.concatenate([np.asarray(group) for group in members])
    start = np.repeat(np.cumsum(sizes) - sizes, sizes)
    size = np.repeat(sizes, sizes)
    place = np.arange(len(ranks)) - start
    right = ranks[start + (place + 1) % size]
    chunk = np.zeros(max(sizes), np.int64)
    chunk[: len(owned)] = owned
    reduces = segment is not None
    most = int(sizes.max())
    if most > 1 and sizes.min() == most and chunk.min() == chunk.max():
        nbytes = np.full(len(ranks), chunk[0])
        yield Round(ranks, right, nbytes, reduces, segment or 0, most - 1)
        return
    for i in range(most - 1):
        runs = size - 1 > i
        nbytes = chunk[(place - i - reduces) % size]
        yield Round(ranks[runs], right[runs], nbytes[runs], reduces, segment or 0)


def folded(
    size: int, nbytes: int
) -> tuple[np.ndarray, np.ndarray, list[Round], list[Round]]:
    """Return the places 0 … power-1, their ranks, and the rounds to fold and unfold.

    See `topology.Fold`.
    """
    power, extra = fold(size)
    places = np.arange(power)
    ranks = np.where(places < extra, 2 * places, places + extra)
    if not extra:
        return places, ranks, [], []
    even, odd = ranks[:extra], ranks[:extra] + 1
    buffer = full(extra, nbytes)
    return (
        places,
        ranks,
        [Round(odd, even, buffer, True)],
        [Round(even, odd, buffer, False)],
    )


def chunk_bytes(length: int, parts: int, itemsize: int) -> np.ndarray:
    """Return the bytes of every chunk of `topology.chunks`."""
    short, longer = divmod(length, parts)
    return (short + (np.arange(parts) < longer)) * itemsize


def step(itemsize: int, segment: int) -> int:
    """Return the bytes of a segment rounded down to elements, at least one element."""
    return max(1, segment // itemsize) * itemsize


def full(count: int, value: int) -> np.ndarray:
    """Return an int64 array of equal values."""
    return np.full(count, value, np.int64)


def words_sent(rounds: Iterable[Round], itemsize: int = 4) -> int:
    """Return the number of words (buffer elements) that all ranks send in total."""
    return sum(entry.times * int(entry.nbytes.sum()) // itemsize for entry in rounds)


SCHEDULES: dict[str, Callable[..., Iterator[Round]]] = {
    "star": star,
    "tree": tree,
    "butterfly": butterfly,
    "halving_doubling": halving_doubling,
    "ring": ring,
    "hierarchical": hierarchical,
}
