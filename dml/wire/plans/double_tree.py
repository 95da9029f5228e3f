"""Two binary trees in which no rank sends more than twice: pure arithmetic.

    tree 0        0             tree 1        7          p = 8
                  │                           │
                  4                           3          every rank is inner in at most
              2       6                   5       1      one tree (for odd p: rank 0 has
            1   3   5   7               6   4   2   0    one child in each)

Half of the buffer goes down each tree, piece by piece. The edges have two colours such
that the edges by which a rank receives differ in colour, and those by which it sends,
too. In round x edges of colour x mod 2 are used: a rank sends and receives at most one
piece in a round, and after some rounds exactly one (Sanders, Speck and Träff 2009).
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dml.wire.plans.topology import chunks

NO_RANK = -1  # parent of a root


class Edges(NamedTuple):
    """The edges of both trees, from parent to child; arrays are by edge."""

    parent: np.ndarray
    child: np.ndarray
    tree: np.ndarray  # 0 or 1
    start: np.ndarray  # round of the first piece; further ones follow every 2 rounds


@lru_cache(maxsize=64)
def edges(size: int) -> Edges:
    """Return the edges for a broadcast from the roots of both trees."""
    parents = parents_of(size)
    return started(
        [
            (parents[tree][child], child, tree)
            for tree in range(2)
            for child in range(size)
            if parents[tree][child] != NO_RANK
        ]
    )


@lru_cache(maxsize=64)
def rooted_edges(size: int) -> Edges:
    """Return the edges for a broadcast from rank 0 to trees of the other ranks."""
    parents = parents_of(size - 1)
    return started(
        [
            (parents[tree][child] + 1, child + 1, tree)  # rank 0 is above the roots
            for tree in range(2)
            for child in range(size - 1)
        ]
    )


def started(found: list[tuple[int, int, int]]) -> Edges:
    """Return the edges with the rounds of their first pieces.

    found: Parent, child and tree of each edge.
    """
    colour = colours(found)
    above = {(child, tree): number for number, (_, child, tree) in enumerate(found)}
    start: dict[int, int] = {}

    def first(number: int) -> int:
        """Return the round in which the first piece passes an edge."""
        if number not in start:
            parent, _, tree = found[number]
            before = above.get((parent, tree))
            earliest = 0 if before is None else first(before) + 1
            start[number] = earliest + (earliest + colour[number]) % 2
        return start[number]

    table = [(*edge, first(number)) for number, edge in enumerate(found)]
    return Edges(*np.array(table, np.int64).reshape(-1, 4).T)


def parents_of(size: int) -> tuple[list[int], list[int]]:
    """Return the parents of all ranks in both trees."""
    one = [parent(rank, size) for rank in range(size)]
    if size % 2:  # all ranks moved by one
        other = [one[(rank - 1) % size] for rank in range(size)]
        return one, [NO_RANK if up < 0 else (up + 1) % size for up in other]
    other = [one[size - 1 - rank] for rank in range(size)]  # mirrored
    return one, [NO_RANK if up < 0 else size - 1 - up for up in other]


def parent(rank: int, size: int) -> int:
    """Return the parent in tree 0: the lowest bit moves up, or is deleted."""
    if not rank:
        return NO_RANK
    lowest = rank & -rank
    up = (rank ^ lowest) | 2 * lowest
    return up if up < size else rank ^ lowest


def colours(found: list[tuple[int, int, int]]) -> list[int]:
    """Return a colour of each edge, 0 or 1, as the module's docstring describes."""
    at: dict[tuple[str, int], list[int]] = {}
    for number, (parent, child, _) in enumerate(found):
        at.setdefault(("sends", parent), []).append(number)
        at.setdefault(("receives", child), []).append(number)
    colour = [-1] * len(found)
    for first in range(len(found)):
        waiting = [(first, 0)] if colour[first] < 0 else []
        while waiting:
            number, shade = waiting.pop()
            if colour[number] < 0:
                colour[number] = shade
                parent, child, _ = found[number]
                others = at["sends", parent] + at["receives", child]
                waiting += [(other, 1 - shade) for other in others if other != number]
    return colour


def pieces(length: int, step: int) -> tuple[list[slice], list[slice]]:
    """Return the pieces of both halves of a buffer, of at most `step` elements."""
    halves = chunks(length, 2)
    count = max(1, -(-(halves[0].stop - halves[0].start) // step))
    first, second = (
        [
            slice(half.start + part.start, half.start + part.stop)
            for part in chunks(half.stop - half.start, count)
        ]
        for half in halves
    )
    return first, second


def rounds(size: int, count: int) -> int:
    """Return the number of rounds of a broadcast of `count` pieces in each tree."""
    return int(edges(size).start.max()) + 2 * count - 1 if size > 1 else 0
