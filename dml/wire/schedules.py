"""The message all-reduces as data: who sends how much to whom, round by round.

A number of ranks and a length come in, the rounds go out. They are those of
`wire.messages`, message for message; what runs none, `sim.evaluate`, reads them.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from dml.types import Round
from dml.wire.topology import SEGMENT, fold


def star(
    size: int, length: int, itemsize: int = 4, segment: int = SEGMENT
) -> Iterator[Round]:
    """Reduce at rank 0 one peer after another; send to one after another."""
    root, nbytes = np.zeros(1, np.int64), full(1, length * itemsize)
    for peer in range(1, size):
        yield Round(full(1, peer), root, nbytes, True, step(itemsize, segment))
    for peer in range(1, size):
        yield Round(root, full(1, peer), nbytes, False)


def tree(
    size: int, length: int, itemsize: int = 4, segment: int = SEGMENT
) -> Iterator[Round]:
    """Reduce up a binomial tree, nearest children first; send back down."""
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
    """Exchange everything with the partner 1, 2, 4, … places away."""
    places, ranks, folding, unfolding = folded(size, length * itemsize)
    segment = step(itemsize, segment)
    yield from (one._replace(segment=segment) for one in folding)
    nbytes = full(len(places), length * itemsize)
    reach = 1
    while reach < len(places):
        yield Round(ranks, ranks[places ^ reach], nbytes, True, segment)
        reach *= 2
    yield from unfolding


def halving_doubling(
    size: int, length: int, itemsize: int = 4, segment: int = SEGMENT
) -> Iterator[Round]:
    """Exchange a half, a quarter, … with such partners; then the same way back."""
    places, ranks, folding, unfolding = folded(size, length * itemsize)
    segment = step(itemsize, segment)
    yield from (one._replace(segment=segment) for one in folding)
    low, high = np.zeros(1, np.int64), full(1, length)
    kept = []  # by reach: what a place keeps, which only its last bits decide
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
    """Pass p chunks to the right while they are summed, and once more when they are.

    Equal chunks make all rounds one that is repeated.
    """
    if size == 1:
        return
    ranks = np.arange(size)
    right, nbytes = np.roll(ranks, -1), chunk_bytes(length, size, itemsize)
    once = length % size == 0
    for reduces in (True, False):
        first = nbytes if reduces else np.roll(nbytes, -1)
        whole = step(itemsize, segment) if reduces else 0
        for i in range(1 if once else size - 1):
            given = np.roll(first, i)
            yield Round(ranks, right, given, reduces, whole, size - 1 if once else 1)


def hierarchical(
    size: int,
    length: int,
    itemsize: int = 4,
    segment: int = SEGMENT,
    members: Sequence[Sequence[int]] = (),
    outside: Callable[..., Iterator[Round]] = ring,
) -> Iterator[Round]:
    """Scatter inside groups, all-reduce across their l-th ranks, gather inside.

    `topology.groups` gives the members; those of a group are on different hosts, for
    on one host they would share memory. `outside` is any of the others.
    """
    members = members or [range(size)]
    owners = min(map(len, members))
    owned = chunk_bytes(length, owners, itemsize)
    yield from inside(members, owned, step(itemsize, segment))
    ranks_GxO = np.array([list(group[:owners]) for group in members])
    for nbytes in np.unique(owned).tolist():
        lanes_GxL = ranks_GxO[:, owned == nbytes]
        lanes = lanes_GxL.shape[1]
        for one in outside(len(members), nbytes // itemsize, itemsize, segment):
            yield one._replace(
                source=lanes_GxL[one.source].reshape(-1),
                dest=lanes_GxL[one.dest].reshape(-1),
                nbytes=np.repeat(one.nbytes, lanes),
            )
    yield from inside(members, owned, None)


def inside(
    members: Sequence[Sequence[int]], owned: np.ndarray, segment: int | None
) -> Iterator[Round]:
    """Go round a ring in every group at once; reduce if there is a segment, else copy.

    Rank l of a group ends with chunk l; those without one pass on empty messages.
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
    for i in range(max(sizes) - 1):
        runs = size - 1 > i
        nbytes = chunk[(place - i - reduces) % size]
        yield Round(ranks[runs], right[runs], nbytes[runs], reduces, segment or 0)


def folded(
    size: int, nbytes: int
) -> tuple[np.ndarray, np.ndarray, list[Round], list[Round]]:
    """Places of the power of two, their ranks, and the rounds that (un)fold pairs."""
    power, extra = fold(size)
    places = np.arange(power)
    ranks = np.where(places < extra, 2 * places, places + extra)
    if not extra:
        return places, ranks, [], []
    even, odd = ranks[:extra], ranks[:extra] + 1
    whole = full(extra, nbytes)
    return (
        places,
        ranks,
        [Round(odd, even, whole, True)],
        [Round(even, odd, whole, False)],
    )


def chunk_bytes(length: int, parts: int, itemsize: int) -> np.ndarray:
    """The bytes of every chunk, as `topology.chunks` cuts them."""
    short, longer = divmod(length, parts)
    return (short + (np.arange(parts) < longer)) * itemsize


def step(itemsize: int, segment: int) -> int:
    """The bytes of a segment: whole elements, at least one."""
    return max(1, segment // itemsize) * itemsize


def full(count: int, value: int) -> np.ndarray:
    return np.full(count, value, np.int64)


SCHEDULES: dict[str, Callable[..., Iterator[Round]]] = {
    "star": star,
    "tree": tree,
    "butterfly": butterfly,
    "halving_doubling": halving_doubling,
    "ring": ring,
    "hierarchical": hierarchical,
}
