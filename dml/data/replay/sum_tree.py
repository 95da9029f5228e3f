"""A sum tree of integers: proportional sampling and updates of weights in O(log n).

                      16                    total
              ┌────────┴───────┐
              9                7            sums of WIDTH children (here 2)
          ┌───┴───┐        ┌───┴───┐
    leaf  4       5        0       7
    draws 0..3    4..8     –       9..15

A leaf of weight w is selected by w of the draws 0, 1, ..., total - 1, so a uniform
draw selects each leaf in exact proportion to its weight, and never a leaf of weight 0.
Sums of integers have no rounding error: after any sequence of updates each node is
the sum of its children, bit for bit. In floating point the errors of updates add up,
and a draw near the total may select a leaf of weight 0.

Cost of an update or a draw: log n / log WIDTH nodes, and the additions of a draw in
WIDTH / 2 neighbours of each, which are in one or two cache lines.
"""

import numpy as np
from numba import njit

from dml.types import BadInput

WIDTH = 16  # children of a node: two cache lines
LARGEST = 2**62  # bound of the total


class SumTree:
    """Weights of n leaves, and sums of groups of weights.

    Args:
      leaves: Number of leaves n, whose weights are 0 at first.
      largest: Bound of a weight; n times this must be at most 2^62.
    """

    def __init__(self, leaves: int, largest: int = 2**40):
        if leaves < 1 or leaves * largest > LARGEST:
            raise BadInput(
                f"expected 1 to {LARGEST // largest} leaves with weights up to "
                f"{largest}, got {leaves}; pass another capacity"
            )
        self.leaves, self.largest = leaves, largest
        sizes = [leaves]
        while sizes[-1] > 1:
            sizes.append(-(-sizes[-1] // WIDTH))
        padded = [-(-size // WIDTH) * WIDTH for size in sizes]
        # the first node of each level, from the leaves to the root
        self.starts = np.cumsum([0, *padded[:-1]])
        self.nodes = np.zeros(sum(padded), np.int64)

    @property
    def total(self) -> int:
        """Return the sum of all weights."""
        return int(self.nodes[self.starts[-1]])

    @property
    def weights(self) -> np.ndarray:
        """Return the weights of all leaves, as a view."""
        return self.nodes[: self.leaves]

    def update(self, indices: np.ndarray, weights: np.ndarray) -> None:
        """Set the weights of leaves; of equal indices the last weight counts."""
        indices = in_range("leaves", indices, self.leaves)
        weights = in_range("weights", weights, self.largest + 1)
        set_weights(self.nodes, self.starts, indices, weights)

    def find(self, draws: np.ndarray) -> np.ndarray:
        """Return the leaf of each draw, an integer from 0 to total - 1."""
        draws = in_range("draws", draws, self.total)
        return find_leaves(self.nodes, self.starts, draws)


def in_range(name: str, numbers: np.ndarray, stop: int) -> np.ndarray:
    """Return numbers as int64; raise ValueError unless all are in 0 to stop - 1."""
    numbers = np.ascontiguousarray(numbers, np.int64)
    if numbers.size and not (numbers.min() >= 0 and numbers.max() < stop):
        raise ValueError(
            f"expected {name} from 0 to {stop - 1}, got {numbers}; pass {name} in range"
        )
    return numbers


@njit(cache=True, nogil=True)
def set_weights(
    nodes: np.ndarray, starts: np.ndarray, indices: np.ndarray, weights: np.ndarray
) -> None:
    """Set weights of leaves; add each change to all sums above its leaf."""
    for k in range(len(indices)):
        node = indices[k]
        change = weights[k] - nodes[node]
        for start in starts:
            nodes[start + node] += change
            node //= WIDTH


@njit(cache=True, nogil=True)
def find_leaves(nodes: np.ndarray, starts: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Return, for each draw, the leaf whose range of cumulative weights has it."""
    leaves = np.empty(len(draws), np.int64)
    for k in range(len(draws)):
        remainder, node = draws[k], 0
        for level in range(len(starts) - 2, -1, -1):
            node *= WIDTH
            start = starts[level]
            while remainder >= nodes[start + node]:
                remainder -= nodes[start + node]
                node += 1
        leaves[k] = node
    return leaves


def stratified_draws(total: int, uniforms: np.ndarray) -> np.ndarray:
    """Return an integer in each of B equal parts of 0, 1, ..., total - 1.

    Parts differ by at most one in length. A part without an integer, of a total below
    B, has its lower bound.

    Args:
      total: Number of integers.
      uniforms: Uniform numbers in 0 to 2^64 - 1, B in uint64; each selects an integer
        of its part by its remainder, whose bias is below length / 2^64.
    """
    count = len(uniforms)
    quotient, rest = divmod(total, count)
    bounds = np.arange(count + 1) * quotient + np.arange(count + 1) * rest // count
    lengths = np.maximum(np.diff(bounds), 1).astype(np.uint64)
    return bounds[:-1] + (uniforms % lengths).astype(np.int64)
