"""Growth of a tree, leaf by leaf: the leaf with the largest gain is split next.

    histogram of the root ──► add_parts ──► search own columns ──► collect the best
    repeat: take the leaf with the largest (gain, -leaf)
            the owner of its column shares a bit per row          (columns split)
            count the rows that go left                           (rows split)
            histogram of the child with fewer rows ──► add_parts
            sibling = parent - child;  search both ──► collect the best of both
    sums of the leaves in FINE fixed point ──► values

Words over a grid of R x C ranks (p = RC) for a tree with L leaves on S slots, of w
words in a message, whose split nodes have m_i rows in each of the R blocks of rows:

    C · 2(R-1) · (3 + L-1 + 2L) + (R-1) Σ S w + p(p-1) · 7 (2H-1) + (C-1) Σ ⌈m_i/64⌉

H is the number of histograms: L-1, or fewer if children cannot be split. Tables with
categories have 11 in place of 7. `costs.tree_words` computes this for a given tree.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dml.boosting.fixed import FLUSH
from dml.boosting.histograms import histogram, unpacked
from dml.boosting.messages import add, add_parts, collect, share_flags
from dml.boosting.rows import divide, flags_of, sum_packed, sum_rows
from dml.boosting.search import (
    Limits,
    Node,
    Split,
    best_of,
    output,
    search_columns,
)
from dml.boosting.sparse import SparseRows, sparse_flags
from dml.boosting.table import Table
from dml.boosting.tree import Tree
from dml.boosting.vote import elected_sums, shard_sums, votes


@dataclass
class Leaf:
    """A leaf of a growing tree: its rows on this rank, and its sums over all ranks."""

    begin: int
    used: int
    end: int
    node: Node
    depth: int = 0
    sums: Any = None  # histogram of this rank's part of the columns
    split: Split | None = None


class Gradients(NamedTuple):
    """Fixed-point gradients of the rows of a rank, and their units."""

    fine: np.ndarray  # g and h of each row
    packed: np.ndarray
    g_unit: float  # of COARSE
    h_unit: float
    g_fine: float
    h_fine: float
    constant: bool  # whether every second derivative is 1


@dataclass
class Growing:
    """One tree while it grows."""

    table: Table
    gradients: Gradients
    rows: np.ndarray  # row numbers, by leaf
    read: np.ndarray  # whether the round reads each column of the part
    limits: Limits
    leaves: list[Leaf] = field(default_factory=list)
    nodes: list[tuple[Split, Node]] = field(default_factory=list)
    children: list[list[int]] = field(default_factory=list)

    def begin(self, used: int) -> None:
        """Make the root; the first `used` rows take part."""
        grid = self.table.grid
        g, h = sum_packed(self.rows[:used], self.gradients.packed)
        sums = add(grid.down, np.array([g, h, used], np.int64)).tolist()
        node = Node(sums[0], sums[1], sums[2], -np.inf, np.inf)
        root = Leaf(0, used, len(self.rows), node)
        self.leaves.append(root)
        if self.can_split(root):
            root.sums = self.histogram(root)
            self.search([root])

    def can_split(self, leaf: Leaf) -> bool:
        """Return whether a split of a leaf is possible; equal on all ranks."""
        settings, node = self.table.settings, leaf.node
        deep = settings.depth and leaf.depth >= settings.depth
        hessian = node.h * self.limits.h_unit
        enough = node.rows >= 2 * max(settings.min_rows, 1)
        return not deep and enough and hessian >= 2 * settings.min_hessian

    def histogram(self, leaf: Leaf) -> np.ndarray:
        """Return the sums of a leaf over all ranks, for this rank's columns.

        If shards vote: those of each shard of this rank, for all columns.
        """
        table = self.table
        small = leaf.node.rows <= FLUSH
        rows = self.rows[leaf.begin : leaf.used]
        packed = self.gradients.packed
        if table.shards:
            return shard_sums(
                table.shards,
                table.binned,
                table.slots,
                rows,
                packed,
                table.counted,
            )
        sums = histogram(table.binned, table.slots, rows, packed, small, table.counted)
        sums = add_parts(table.grid.down, sums, table.slots.edges)
        return unpacked(sums) if small else sums

    def search(self, leaves: list[Leaf]) -> None:
        """Set the best split of leaves that have a histogram; collective."""
        table, limits = self.table, self.limits
        own = np.zeros((len(leaves), table.record), np.int64)
        for leaf, record in zip(leaves, own, strict=True):
            node = leaf.node
            if not (table.counted or self.gradients.constant):
                node = node._replace(rows=node.h)  # min_rows is 1 at most
            columns, read, sums = table.columns_Fx5, self.read, leaf.sums
            if table.shards:
                sums, columns = self.elected(leaf, node)
                read = np.ones(len(columns), bool)
            search_columns(sums, columns, read, node, limits, record)
        every = collect(table.grid.everyone, own)
        for i, leaf in enumerate(leaves):
            leaf.split = best_of(every[:, i])

    def elected(self, leaf: Leaf, node: Node) -> tuple[np.ndarray, np.ndarray]:
        """Return the sums and the columns that the shards elect; collective."""
        table, shards = self.table, self.table.shards
        assert shards
        rows = self.rows[leaf.begin : leaf.used]
        counts = np.diff(np.searchsorted(rows, shards.edges))
        weights, columns = counts * shards.number / leaf.node.rows, table.columns_Fx5
        read = columns, self.read
        made = votes(shards, leaf.sums, weights, read, node, self.limits)
        return elected_sums(table.grid, made, shards.top, leaf.sums, columns)

    def next_leaf(self) -> int:
        """Return the leaf to split, or -1."""
        gains = [leaf.split.gain if leaf.split else -1.0 for leaf in self.leaves]
        best = gains.index(max(gains))
        return best if self.leaves[best].split else -1

    def split(self, number: int) -> None:
        """Split a leaf: its left child keeps the number."""
        leaf, settings = self.leaves[number], self.table.settings
        found = leaf.split
        assert found
        middle, used_left = self.move_rows(leaf, found)
        count = add(self.table.grid.down, np.array([used_left], np.int64)).item()
        one, two = self.child_nodes(leaf.node, found, count)
        depth, used = leaf.depth + 1, leaf.begin + used_left
        left = Leaf(leaf.begin, used, middle, one, depth)
        right = Leaf(middle, middle + leaf.used - used, leaf.end, two, depth)
        self.nodes.append((found, leaf.node))
        self.children.append([number, len(self.leaves)])
        self.leaves[number] = left
        self.leaves.append(right)
        full = len(self.leaves) >= settings.leaves
        searched = [each for each in (left, right) if self.can_split(each)]
        if full or not searched:
            return
        fewer, more = (left, right) if one.rows <= two.rows else (right, left)
        fewer.sums = self.histogram(fewer)
        more.sums = leaf.sums
        more.sums -= fewer.sums
        self.search(searched)

    def move_rows(self, leaf: Leaf, found: Split) -> tuple[int, int]:
        """Divide the rows of a leaf; return the middle, and the used rows before."""
        table, rows = self.table, self.rows[leaf.begin : leaf.end]
        flags = table.flags[: len(rows)]
        owner = int(np.searchsorted(table.firsts, found.column, side="right")) - 1
        if owner == table.grid.column:
            own = found.column - int(table.firsts[owner])
            goes = left_table(found, int(table.bins.counts[own]))
            if isinstance(table.binned, SparseRows):
                sparse_flags(table.binned, own, goes, rows, flags)
            else:
                flags_of(table.binned.columns_FxN[own], goes, rows, flags)
        share_flags(table.grid.across, flags, owner)
        used_left = int(np.count_nonzero(flags[: leaf.used - leaf.begin]))
        return leaf.begin + divide(rows, flags, table.scratch), used_left

    def child_nodes(self, node: Node, found: Split, rows: int) -> tuple[Node, Node]:
        """Return the sums and intervals of the children."""
        low, high, limits = node.low, node.high, self.limits
        one = Node(found.g, found.h, rows, low, high)
        two = Node(node.g - found.g, node.h - found.h, node.rows - rows, low, high)
        monotone = self.table.settings.monotone
        direction = monotone[found.column] if monotone else 0
        if direction:
            values = [
                output(
                    each.g * limits.g_unit,
                    each.h * limits.h_unit,
                    low,
                    high,
                    limits.l1,
                    limits.l2,
                )
                for each in (one, two)
            ]
            middle = (values[0] + values[1]) / 2
            if direction > 0:
                return one._replace(high=middle), two._replace(low=middle)
            return one._replace(low=middle), two._replace(high=middle)
        return one, two

    def leaf_values(self) -> np.ndarray:
        """Return the values of all leaves, from sums in FINE fixed point."""
        settings, gradients = self.table.settings, self.gradients
        sums = [
            sum_rows(self.rows[leaf.begin : leaf.used], gradients.fine)
            for leaf in self.leaves
        ]
        fine = add(self.table.grid.down, np.array(sums, np.int64))
        values = [
            output(
                float(g) * gradients.g_fine,
                float(h) * gradients.h_fine,
                leaf.node.low,
                leaf.node.high,
                settings.l1,
                settings.l2,
            )
            if h > 0
            else 0.0
            for (g, h), leaf in zip(fine.tolist(), self.leaves, strict=True)
        ]
        return settings.rate * np.array(values)


def left_table(found: Split, count: int) -> np.ndarray:
    """Return whether each bin goes left."""
    goes = np.zeros(256, np.uint8)
    if found.bin >= 0:
        goes[: found.bin + 1] = 1
        goes[count] = found.missing_left
    else:
        for b in range(count):
            goes[b] = found.set[b >> 6] >> (b & 63) & 1
    return goes


def grow(
    table: Table,
    gradients: Gradients,
    rows: np.ndarray,
    used: int,
    read: np.ndarray,
    class_: int,
) -> tuple[Tree, list[Leaf], np.ndarray]:
    """Return a tree without thresholds, its leaves, and the rows by leaf; collective.

    Args:
      table: The table.
      gradients: Gradients of the rows.
      rows: Row numbers; those in the round first.
      used: Number of rows in the round.
      read: Whether the round reads each column of this rank's part.
      class_: Output of the tree.
    """
    s = table.settings
    limits = Limits(
        g_unit=gradients.g_unit,
        h_unit=gradients.h_unit,
        l1=s.l1,
        l2=s.l2,
        min_rows=s.min_rows,
        min_hessian=s.min_hessian,
        min_gain=s.min_gain,
    )
    growing = Growing(table, gradients, rows, read, limits)
    growing.begin(used)
    while len(growing.leaves) < s.leaves:
        number = growing.next_leaf()
        if number < 0:
            break
        growing.split(number)
    return finished(growing, class_), growing.leaves, growing.rows


def finished(growing: Growing, class_: int) -> Tree:
    """Return the arrays of a tree; thresholds and sets of categories follow."""
    splits = [split for split, _ in growing.nodes]
    count = len(splits)
    left, right = child_numbers(growing.children, count)
    return Tree(
        np.array([split.column for split in splits], np.int32),
        np.array([split.bin for split in splits], np.int32),
        np.zeros(count),
        np.array([split.missing_left for split in splits], bool),
        left,
        right,
        np.array([split.gain for split in splits], np.float64),
        tuple(split.set if split.bin < 0 else () for split in splits),
        growing.leaf_values(),
        np.array([node[:3] for _, node in growing.nodes], np.int64).reshape(-1, 3),
        np.array([leaf.node[:3] for leaf in growing.leaves], np.int64),
        (growing.limits.g_unit, growing.limits.h_unit),
        class_,
    )


def child_numbers(
    children: list[list[int]], count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the children of each node: a later node that split the leaf, or a leaf."""
    left, right = np.zeros(count, np.int32), np.zeros(count, np.int32)
    made: dict[int, tuple[np.ndarray, int]] = {}  # leaf -> its place as a child
    for i, (one, two) in enumerate(children):
        if one in made:
            side, parent = made[one]
            side[parent] = i
        left[i], right[i] = -1 - one, -1 - two
        made[one], made[two] = (left, i), (right, i)
    return left, right
