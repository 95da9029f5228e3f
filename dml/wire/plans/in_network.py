"""An all-reduce by a tree of routers that add, as rounds of pieces.

    slot        0     1     2     3     4          a rank below the root sends piece t
    rank ──►    0     1     2     3                in slot t; its router has added it
    rank ◄──          0     1     2     3          after the slot

A rank sends one piece and receives the sum of an earlier one at the same time. On each
level of the tree upwards and downwards a piece is one slot later.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dml.wire.plans.broadcasts import Broadcast, Sends


class Tree(NamedTuple):
    """Ranks below routers; nodes are the ranks, the adders and the copiers."""

    ranks: int
    parents: tuple[int, ...]  # adder above each rank and adder; the root's is itself

    @property
    def routers(self) -> int:
        return len(self.parents) - self.ranks

    @property
    def nodes(self) -> int:
        return self.ranks + 2 * self.routers

    @property
    def depths(self) -> np.ndarray:
        """Return the number of edges to the root of each rank and adder."""
        depth, at = np.zeros(len(self.parents), np.int64), np.arange(len(self.parents))
        parents = np.array(self.parents)
        while (parents[at] != at).any():
            depth += parents[at] != at
            at = parents[at]
        return depth


@lru_cache(maxsize=16)
def pieces_of(tree: Tree) -> Broadcast:
    """Return the rounds for any number of pieces."""

    def plan(size: int, pieces: int) -> tuple[Sends, ...]:
        return rounds(tree, pieces)

    return Broadcast(lru_cache(plan), count_pieces)


def count_pieces(size: int, length: int, most: int) -> int:
    return max(1, -(-length // most))


def rounds(tree: Tree, pieces: int) -> tuple[Sends, ...]:
    """Return the rounds, for each slot from the top of the tree to the ranks and back.

    An adder copies the piece of its first child, and adds those of the others. A router
    passes on a piece before it receives the next one.
    """
    parents, depth, most = np.array(tree.parents), tree.depths, int(tree.depths.max())
    (root,) = np.flatnonzero(depth == 0)
    turns = by_turn(tree)
    routers = [(turn, own) for turn, own in turns if own[0] >= tree.ranks]
    ranks = [(turn, own) for turn, own in turns if own[0] < tree.ranks]

    def up(own: np.ndarray, slot: int) -> np.ndarray:
        return np.stack([own, parents[own], slot - most + depth[own]])

    def down(own: np.ndarray, slot: int) -> np.ndarray:
        copier = own + tree.routers * (own >= tree.ranks)
        return np.stack(
            [parents[own] + tree.routers, copier, slot - most + 1 - depth[own]]
        )

    found = []
    for slot in range(pieces + 2 * most - 1):
        moves = [(turn > 0, up(own, slot)) for turn, own in routers]
        moves += [
            (turn > 0, np.concatenate([up(own, slot), down(own, slot)], axis=1))
            for turn, own in ranks
        ]
        moves += [(False, down(own, slot)) for _, own in reversed(routers)]
        last = np.array([[root], [root + tree.routers], [slot - most + 1]])
        for adds, ends in [*moves, (False, last)]:
            source, dest, piece = ends[:, (ends[2] >= 0) & (ends[2] < pieces)]
            if piece.size:
                found.append(Sends(source, dest, piece, np.ones_like(piece), adds))
    return tuple(found)


def by_turn(tree: Tree) -> list[tuple[int, np.ndarray]]:
    """Return sets of children with different parents, each with the place of the child.

    Routers are before ranks, those near the root first.
    """
    parents, depth = np.array(tree.parents), tree.depths
    child = np.flatnonzero(depth)
    child = child[np.lexsort([child < tree.ranks, parents[child]])]
    _, first, count = np.unique(parents[child], return_index=True, return_counts=True)
    place = np.arange(len(child)) - np.repeat(first, count)
    level = np.where(child < tree.ranks, len(parents), depth[child])
    keys = np.stack([level, place])
    return [
        (int(key[1]), child[(keys == key[:, None]).all(0)])
        for key in np.unique(keys, axis=1).T
    ]
