"""Serial implementations of every all-reduce, which add in the same order.

The argument has a row for the vector of each rank; the result is the vector that every
rank must have at the end, bit for bit. Written from the published algorithms and the
docstrings, not from the code: this module does not import `dml` and sends no messages.
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


def ring(rows: np.ndarray, owners: int = 0) -> np.ndarray:
    """Chunk c begins with its own rank: ((x_c + x_{c+1}) + …) + x_{c-1}.

    Inside a group rank c of the owners ends with chunk c, so that it begins one later.
    """
    parts = np.array_split(np.arange(rows.shape[1]), owners or len(rows))
    total = np.empty_like(rows[0])  # longer parts come first
    for c, part in enumerate(parts):
        first = c + (owners > 0)
        total[part] = in_rank_order(np.roll(rows[:, part], -first, axis=0))
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
        in_rank_order(rows[list(group)]) if hosts else ring(rows[list(group)], owners)
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
    "halving_doubling": butterfly,  # the same pairs, each word at one of them
    "ring": ring,
    "shared": in_rank_order,
}
