"""Trees of any arity, by arithmetic: the parent of rank r is ⌊(r - 1)/arity⌋.

arity 1: 0 ── 1 ── 2 ── 3     arity 2:    0        arity p-1:     0
         (chain)                        1   2      (star)       1 2 3 …
                                       3 4 5 6
"""

from typing import NamedTuple

import numpy as np

NO_RANK = -1  # parent of the root, and child of a leaf


class Tree(NamedTuple):
    """A complete tree; its functions accept one rank or an array of ranks."""

    size: int
    arity: int

    def parent(self, rank: np.ndarray) -> np.ndarray:
        """Return the parent of a rank; NO_RANK for the root."""
        return np.where(rank > 0, (rank - 1) // self.arity, NO_RANK)

    def child(self, rank: np.ndarray, k: int) -> np.ndarray:
        """Return the k-th child of a rank, or NO_RANK."""
        child = rank * self.arity + 1 + k
        return np.where(child < self.size, child, NO_RANK)

    def parent_of(self, rank: np.ndarray, k: int) -> np.ndarray:
        """Return the parent of a rank that is a k-th child; NO_RANK for other ranks."""
        return np.where((rank - 1) % self.arity == k, self.parent(rank), NO_RANK)

    def degree(self, rank: np.ndarray) -> np.ndarray:
        """Return the number of neighbours of a rank."""
        first = np.minimum(rank * self.arity + 1, self.size)
        last = np.minimum(first + self.arity, self.size)
        return last - first + (np.asarray(rank) > 0)

    def neighbours(self, rank: int) -> list[int]:
        """Return the parent and the children of a rank."""
        first = rank * self.arity + 1
        children = range(first, min(first + self.arity, self.size))
        return ([(rank - 1) // self.arity] if rank else []) + list(children)

    def diameter(self) -> int:
        """Return the number of edges between the two most distant ranks."""
        depth, rank = 0, self.size - 1
        while rank:
            rank, depth = (rank - 1) // self.arity, depth + 1
        if self.arity == 1:
            return depth
        if depth < 2:
            return min(self.size - 1, 2)
        # the last level reaches beyond the subtree of the first child of the root
        first = (self.arity**depth - 1) // (self.arity - 1)
        beyond = self.size - 1 >= first + self.arity ** (depth - 1)
        return 2 * depth - (not beyond)


def tree(name: str, size: int) -> Tree:
    """Return the tree of a name: chain, star, or tree for a binary tree."""
    return Tree(size, ARITIES[name] or max(1, size - 1))


ARITIES = {"tree": 2, "chain": 1, "star": 0}  # 0: all other ranks are children
