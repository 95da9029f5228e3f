"""In what order every all-reduce adds: serial re-statements, for comparing bits.

The ranks' vectors come in as rows, the one vector that every rank must end with goes
out. Written from ALGORITHMS.md and the docstrings, not from the code: nothing here
imports `dml`, nothing knows of messages.
"""

from collections.abc import Callable, Sequence

import numpy as np

Order = Callable[[np.ndarray], np.ndarray]


def in_rank_order(rows: np.ndarray) -> np.ndarray:
    """((x_0 + x_1) + x_2) + … + x_{p-1}: star, shared."""
    total = rows[0]
    for row in rows[1:]:
        total = total + row
    return total


def ring(rows: np.ndarray) -> np.ndarray:
    """Chunk c begins with its own rank: ((x_c + x_{c+1}) + …) + x_{c-1}."""
    parts = np.array_split(np.arange(rows.shape[1]), len(rows))  # longer ones first
    total = np.empty_like(rows[0])
    for c, part in enumerate(parts):
        total[part] = in_rank_order(np.roll(rows[:, part], -c, axis=0))
    return total


def inner_ring(rows: np.ndarray, owners: int) -> np.ndarray:
    """Rank c ends with chunk c, so that it begins one later: x_{c+1} + … + x_c."""
    parts = np.array_split(np.arange(rows.shape[1]), owners)
    total = np.empty_like(rows[0])
    for c, part in enumerate(parts):
        total[part] = in_rank_order(np.roll(rows[:, part], -(c + 1), axis=0))
    return total


def butterfly(rows: np.ndarray) -> np.ndarray:
    """Neighbours pair up, then pairs of pairs; before that the first ranks fold."""
    power = 1
    while 2 * power <= len(rows):
        power *= 2
    extra = len(rows) - power
    blocks = [rows[2 * i] + rows[2 * i + 1] for i in range(extra)]
    blocks += list(rows[2 * extra :])
    while len(blocks) > 1:
        blocks = [a + b for a, b in zip(blocks[::2], blocks[1::2], strict=True)]
    return blocks[0]


def halving_doubling(rows: np.ndarray) -> np.ndarray:
    """Word by word: its owner in round s is the one of each pair that keeps its half.

    The range [0, n) is halved lg p times; where place has bit s, it keeps the upper
    half and adds what the place without that bit had there, and the other way round.
    """
    power = 1
    while 2 * power <= len(rows):
        power *= 2
    extra = len(rows) - power
    held = [rows[2 * i] + rows[2 * i + 1] for i in range(extra)]
    held += [row.copy() for row in rows[2 * extra :]]
    ranges = [(0, rows.shape[1])] * power
    for s in range(power.bit_length() - 1):
        before = [vector.copy() for vector in held]
        for place in range(power):
            low, high = ranges[place]
            middle = low + (high - low) // 2
            mine = (middle, high) if place >> s & 1 else (low, middle)
            here = slice(*mine)
            other = before[place ^ (1 << s)]
            held[place][here] = before[place][here] + other[here]
            ranges[place] = mine
    total = np.full_like(rows[0], np.nan)
    for place, (low, high) in enumerate(ranges):
        total[low:high] = held[place][low:high]
    return total


def tree(rows: np.ndarray) -> np.ndarray:
    """Rank r adds the subtrees of r+1, r+2, r+4, … in that order."""

    def subtree(rank: int, width: int) -> np.ndarray:
        total, step = rows[rank], 1
        while step < width and rank + step < len(rows):
            total = total + subtree(rank + step, step)
            step *= 2
        return total

    return subtree(0, len(rows))


def hierarchical(
    rows: np.ndarray, groups: Sequence[Sequence[int]], outside: Order, hosts: bool
) -> np.ndarray:
    """Each chunk is added inside every group, then by `outside` across groups.

    Inside a host in rank order, else round a ring. There are as many chunks as the
    smallest group has ranks.
    """
    owners = min(map(len, groups))
    inside = [
        in_rank_order(rows[list(group)])
        if hosts
        else inner_ring(rows[list(group)], owners)
        for group in groups
    ]
    total = np.empty_like(rows[0])
    for part in np.array_split(np.arange(rows.shape[1]), owners):
        total[part] = outside(np.stack(inside)[:, part])
    return total


ORDERS: dict[str, Order] = {
    "star": in_rank_order,
    "tree": tree,
    "butterfly": butterfly,
    "halving_doubling": halving_doubling,
    "ring": ring,
    "shared": in_rank_order,
}
