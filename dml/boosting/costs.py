"""Words that boosting sends, over all ranks, by formula."""

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

    def can_split(sums: np.ndarray, depth: int) -> bool:
        deep = settings.depth and depth >= settings.depth
        enough = sums[2] >= 2 * max(settings.min_rows, 1)
        hessian = sums[1] * tree.units[1]
        return bool(not deep and enough and hessian >= 2 * settings.min_hessian)

    def exchange(rows: int, searched: int) -> int:
        sums = (down - 1) * slots * width(rows <= FLUSH, counted)
        return sums + p * (p - 1) * record * searched

    root = tree.node_sums[0] if nodes else tree.leaf_sums[0]
    total = across * 2 * (down - 1) * (3 + nodes + 2 * (nodes + 1))
    total += (across - 1) * int(bits.sum())
    if can_split(root, 0):
        total += exchange(root[2], 1)
    depths = np.zeros(nodes, int)
    for i in range(nodes):
        sums = []
        for child in (tree.left[i], tree.right[i]):
            if child > 0:
                depths[child] = depths[i] + 1
            sums.append(tree.node_sums[child] if child >= 0 else leaf(tree, child))
        searched = sum(can_split(each, depths[i] + 1) for each in sums)
        if searched and i + 2 < settings.leaves:
            total += exchange(min(each[2] for each in sums), searched)
    return total


def leaf(tree: Tree, child: int) -> np.ndarray:
    """Return the sums of the leaf of a child -1 - l."""
    return tree.leaf_sums[-1 - child]
