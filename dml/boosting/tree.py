"""Trees as arrays, and their predictions.

node 0: x[2] ≤ 0.5          left[i], right[i]: a node, or the leaf -1 - l of leaf l;
  ├─ leaf 0: -0.1           a split of leaf l makes node i, whose left child is leaf
  └─ node 1: x[0] in {1, 4} l and whose right child is the next leaf
       ├─ leaf 1: 0.3
       └─ leaf 2: 0.2
"""

from typing import NamedTuple

import numpy as np
from numba import njit

LARGEST = np.finfo(np.float64).max  # threshold between all values and missing ones


class Tree(NamedTuple):
    """A tree with M nodes and M + 1 leaves.

    Attributes:
      column: Column of each node.
      bin: Largest bin on the left; -1 for categories.
      threshold: Largest value on the left.
      missing_left: Whether missing values go left.
      left: Left child: a node, or -1 - leaf.
      right: Right child.
      gain: Gain of each node.
      sets: Categories on the left; () for a threshold.
      value: Value of each leaf, multiplied by the rate.
      node_sums: g, h and rows of each node: integers in COARSE fixed point.
      leaf_sums: The same of each leaf.
      units: Units of g and of h.
      output: The output to which the values are added.
    """

    column: np.ndarray
    bin: np.ndarray
    threshold: np.ndarray
    missing_left: np.ndarray
    left: np.ndarray
    right: np.ndarray
    gain: np.ndarray
    sets: tuple[tuple[int, ...], ...]
    value: np.ndarray
    node_sums: np.ndarray
    leaf_sums: np.ndarray
    units: tuple[float, float]
    output: int


class Packed(NamedTuple):
    """The nodes and leaves of several trees in one array each."""

    column: np.ndarray
    threshold: np.ndarray
    kind: np.ndarray  # bit 0: missing values go left; bit 1: categories
    left: np.ndarray
    right: np.ndarray
    sets: np.ndarray  # bits of all sets
    set_starts: np.ndarray  # first word of a node's set, and the end
    value: np.ndarray
    nodes: np.ndarray  # first node of each tree, and the end
    leaves: np.ndarray  # first leaf of each tree, and the end
    outputs: np.ndarray  # of each tree


def packed(trees: list[Tree]) -> Packed:
    """Return trees for `add_predictions`."""

    def joined(parts: list, dtype: type) -> np.ndarray:
        return np.concatenate([np.zeros(0, dtype), *parts]).astype(dtype)

    def starts(lengths: list[int]) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)

    sets = [bits_of(each) for tree in trees for each in tree.sets]
    kinds = [
        tree.missing_left + 2 * np.array([bool(s) for s in tree.sets], np.int64)
        for tree in trees
    ]
    return Packed(
        joined([tree.column for tree in trees], np.int64),
        joined([tree.threshold for tree in trees], np.float64),
        joined(kinds, np.int64),
        joined([tree.left for tree in trees], np.int64),
        joined([tree.right for tree in trees], np.int64),
        joined(sets, np.uint32),
        starts([len(bits) for bits in sets]),
        joined([tree.value for tree in trees], np.float64),
        starts([len(tree.column) for tree in trees]),
        starts([len(tree.value) for tree in trees]),
        np.array([tree.output for tree in trees], np.int64),
    )


def bits_of(categories: tuple[int, ...]) -> np.ndarray:
    """Return a set of categories as words of 32 bits."""
    bits = np.zeros(max(categories) // 32 + 1 if categories else 0, np.uint32)
    for category in categories:
        bits[category // 32] |= np.uint32(1 << category % 32)
    return bits


@njit(cache=True, nogil=True)
def goes_left(value, threshold, kind, sets, begin, end):
    """Return whether a value goes left."""
    if kind & 2:
        if not 0.0 <= value < 32.0 * (end - begin):  # also NaN
            return False
        category = np.int64(value)
        return bool((sets[begin + (category >> 5)] >> np.uint32(category & 31)) & 1)
    if value != value:
        return bool(kind & 1)
    return value <= threshold


@njit(cache=True, nogil=True)
def add_predictions(x_NxF, trees, out_NxK, leaf_NxT):
    """Add the values of trees, in their order; write the leaves unless N is 0."""
    for i in range(x_NxF.shape[0]):
        for t in range(len(trees.outputs)):
            first = trees.nodes[t]
            at = np.int64(0) if trees.nodes[t + 1] > first else np.int64(-1)
            while at >= 0:
                n = first + at
                left = goes_left(
                    np.float64(x_NxF[i, trees.column[n]]),
                    trees.threshold[n],
                    trees.kind[n],
                    trees.sets,
                    trees.set_starts[n],
                    trees.set_starts[n + 1],
                )
                at = trees.left[n] if left else trees.right[n]
            out_NxK[i, trees.outputs[t]] += trees.value[trees.leaves[t] - 1 - at]
            if len(leaf_NxT):
                leaf_NxT[i, t] = -1 - at
