"""Words that boosting sends, over all ranks, by formula."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dml.boosting.fixed import FLUSH
from dml.boosting.histograms import width
from dml.boosting.search import BITSET, WORDS
from dml.boosting.settings import Settings
from dml.boosting.tree import Tree


def tree_words(
    tree: Tree,
    settings: Settings,
    grid: tuple[int, int],
    slots: int,
    counted: bool,
    bits: np.ndarray,
) -> int:
    """Return the words that all ranks send while a tree grows; see `grow`.

    Args:
      tree: The tree.
      settings: Settings.
      grid: Numbers R and C of blocks.
      slots: Number of slots of a histogram, over all columns.
      counted: Whether histograms have a word for the number of rows.
      bits: By node: Σ over the R blocks of rows of ⌈m/64⌉, for m rows of the node.
    """
    down, across = grid
    p, nodes = down * across, len(tree.column)
    record = WORDS + BITSET * bool(settings.categories)
    total = across * 2 * (down - 1) * (3 + nodes + 2 * (nodes + 1))
    total += (across - 1) * int(bits.sum())
    for histogram in histograms(tree, settings):
        small = histogram.rows <= FLUSH
        total += (down - 1) * slots * width(small, counted)
        total += p * (p - 1) * record * histogram.searched
    return total


class Histogram(NamedTuple):
    """A histogram that is computed and sent: of the root, or of a smaller child.

    Attributes:
      node: The node, or -1 - leaf.
      rows: Number of its rows.
      searched: Number of nodes whose best split is searched then.
    """

    node: int
    rows: int
    searched: int


def histograms(tree: Tree, settings: Settings) -> Iterator[Histogram]:
    """Yield the histograms of a tree, in the order of its growth; see `grow`."""

    def can_split(sums: np.ndarray, depth: int) -> bool:
        deep = settings.depth and depth >= settings.depth
        enough = sums[2] >= 2 * max(settings.min_rows, 1)
        hessian = sums[1] * tree.units[1]
        return bool(not deep and enough and hessian >= 2 * settings.min_hessian)

    nodes = len(tree.column)
    root = 0 if nodes else -1
    if can_split(sums_of(tree, root), 0):
        yield Histogram(root, int(sums_of(tree, root)[2]), 1)
    depths = np.zeros(nodes, int)
    for i in range(nodes):
        children = int(tree.left[i]), int(tree.right[i])
        depths[[child for child in children if child > 0]] = depths[i] + 1
        sums = [sums_of(tree, child) for child in children]
        searched = sum(can_split(each, depths[i] + 1) for each in sums)
        if searched and i + 2 < settings.leaves:
            fewer = int(sums[1][2] < sums[0][2])
            yield Histogram(children[fewer], int(sums[fewer][2]), searched)


def sums_of(tree: Tree, node: int) -> np.ndarray:
    """Return the sums of a node, or of the leaf of a child -1 - l."""
    return tree.node_sums[node] if node >= 0 else tree.leaf_sums[-1 - node]
