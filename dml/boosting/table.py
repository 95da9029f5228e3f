"""The part of the table that a rank has: its place, bins, slots and thresholds."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from dml.boosting.bins import Bins, make_bins
from dml.boosting.histograms import Slots, slots_of
from dml.boosting.messages import Grid, agree, collect, largest
from dml.boosting.rows import Binned, bin_rows
from dml.boosting.search import BITSET, ONE_HOT, WORDS
from dml.boosting.settings import Data, Settings, check_data, check_sizes
from dml.boosting.sparse import SparseRows, bin_sparse
from dml.boosting.tree import LARGEST, Tree
from dml.boosting.vote import Shards, shards_of


class Place(NamedTuple):
    """Sizes of the table, and the first row and columns of the blocks."""

    rows: int
    first_row: int
    firsts: np.ndarray  # first column of each block, and the number of columns


class Table(NamedTuple):
    """A rank's part of a table while trees grow.

    Attributes:
      grid: Place of this rank.
      settings: Settings.
      bins: Bins of the block's columns.
      binned: Bins of the block's rows.
      slots: Slots of histograms, and this rank's part of the columns.
      firsts: First column of each block of columns, and the number of columns.
      columns_Fx5: The part's columns, for `search_columns`.
      counted: Whether histograms count rows in words of their own.
      flags: Buffer of a byte a row.
      scratch: Buffer of a row number a row.
      shards: Shards of the rank, which vote; None: they do not.
    """

    grid: Grid
    settings: Settings
    bins: Bins
    binned: Binned | SparseRows
    slots: Slots
    firsts: np.ndarray
    columns_Fx5: np.ndarray
    counted: bool
    flags: np.ndarray
    scratch: np.ndarray
    shards: Shards | None = None

    @property
    def record(self) -> int:
        """Words of a split in a message."""
        return WORDS + BITSET * bool(self.settings.categories)


def located(grid: Grid, blocks: list[Data], settings: Settings) -> Place:
    """Return the place of this rank's block in the table, after checks; collective."""
    x = blocks[0].x
    shape = x.shape if getattr(x, "ndim", 0) == 2 else (0, 0)
    columns = collect(grid.across, np.array([shape[1]], np.int64))[:, 0]
    firsts = np.concatenate([[0], np.cumsum(columns)])
    first, problem = int(firsts[grid.column]), ""
    for each in blocks:
        problem = problem or check_data(each, settings, first)
        if not problem and each.x.shape[1] != shape[1]:
            problem = (
                f"expected {shape[1]} columns in an evaluation set, got "
                f"{each.x.shape[1]}; pass the columns of the training"
            )
        if not problem and sparse.issparse(each.x) != sparse.issparse(x):
            problem = (
                "expected evaluation sets that are sparse as the training is, or not, "
                "got the other; convert them"
            )
    agree(grid.everyone, problem)
    counts = np.array([len(each.y) for each in blocks], np.int64)
    if (collect(grid.across, counts) != counts).any():
        problem = "expected equal rows on all ranks of a row of the grid, got others"
    width = -shape[1] - 1 if sparse.issparse(x) else shape[1]
    widths = collect(grid.down, np.array([width], np.int64))
    if (widths != width).any():
        problem = "expected equal columns on all ranks of a column, got others"
        if {*np.abs(widths + (widths < 0)).ravel().tolist()} == {shape[1]}:
            problem = "expected sparse blocks on all ranks or on none, got both"
    agree(grid.everyone, problem and f"{problem}; divide the table by `share`")
    rows = collect(grid.down, counts[:1])[:, 0]
    check_sizes(int(rows.sum()), int(firsts[-1]), settings)
    return Place(int(rows.sum()), int(rows[: grid.row].sum()), firsts)


def make_table(
    grid: Grid, place: Place, data: Data, evaluate: Sequence[Data], settings: Settings
) -> Table:
    """Return the bins of the rows of a rank; collective."""
    first, width = int(place.firsts[grid.column]), data.x.shape[1]
    numbers = np.arange(first, first + width)
    categories = np.isin(numbers, settings.categories)
    bins = make_bins(grid, data.x, settings, categories)
    voting = settings.split == "vote"
    slots = slots_of(bins, *((1, 0) if voting else (grid.rows, grid.row)))
    signs = np.array(settings.monotone or [0] * int(place.firsts[-1]), np.int64)
    kinds = np.where(categories, 2, signs[first : first + width])
    described = np.column_stack([bins.counts, bins.missing, kinds])
    own = slice(slots.first, slots.last)
    sums = np.cumsum((bins.counts + bins.missing)[own])
    begins = np.concatenate([[0], sums])[:-1].astype(np.int64)
    columns = [begins, described[own], numbers[own]]
    columns_Fx5 = np.column_stack(columns).astype(np.int64)
    wide = bool(categories.any() and bins.counts[categories].max() > ONE_HOT)
    many = largest(grid.across, np.array([wide], np.int64)).item()
    blocks = [data, *evaluate]
    place_rows = bin_sparse if sparse.issparse(data.x) else bin_rows
    binned = place_rows(bins, [each.x for each in blocks])
    count = sum(len(each.y) for each in blocks)
    flags, scratch = np.empty(count, np.uint8), np.empty(count, np.int32)
    counted = settings.min_rows > 1 or bool(many)
    shards = None
    if voting:
        shards = shards_of(grid, settings, place.rows, place.first_row, len(data.y))
    return Table(
        grid=grid,
        settings=settings,
        bins=bins,
        binned=binned,
        slots=slots,
        firsts=place.firsts,
        columns_Fx5=columns_Fx5,
        counted=counted,
        flags=flags,
        scratch=scratch,
        shards=shards,
    )


def resolved(table: Table, trees: list[Tree]) -> list[Tree]:
    """Return trees with the thresholds and categories of their columns; collective."""
    bins, column = table.bins, table.grid.column
    first, end = table.firsts[column], table.firsts[column + 1]
    thresholds = np.full(sum(len(tree.column) for tree in trees), -np.inf)
    n = 0
    for tree in trees:
        for c, b in zip(tree.column, tree.bin, strict=True):
            if first <= c < end and b >= 0:
                edges = bins.of(c - first)
                thresholds[n] = edges[b] if b < len(edges) else LARGEST
            n += 1
    largest(table.grid.across, thresholds)
    values = known_categories(table)
    made, n = [], 0
    for tree in trees:
        count = len(tree.column)
        sets = tuple(
            tuple(v for b, v in enumerate(values[c]) if s[b >> 6] >> (b & 63) & 1)
            if s
            else ()
            for c, s in zip(tree.column.tolist(), tree.sets, strict=True)
        )
        limits = np.where(tree.bin < 0, 0.0, thresholds[n : n + count])
        made.append(tree._replace(threshold=limits, sets=sets))
        n += count
    return made


def known_categories(table: Table) -> dict[int, list[int]]:
    """Return the categories of each column of categories; collective."""
    numbers = sorted(set(table.settings.categories))
    values = np.full((len(numbers), table.settings.bins), -1, np.int64)
    first = int(table.firsts[table.grid.column])
    for row, column in zip(values, numbers, strict=True):
        if 0 <= column - first < len(table.bins.counts):
            edges = table.bins.of(column - first)
            row[: len(edges)] = edges
    largest(table.grid.across, values.reshape(-1))
    found: dict[int, Any] = {}
    for row, column in zip(values, numbers, strict=True):
        found[column] = row[row >= 0].tolist()
    return found
