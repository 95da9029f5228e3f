"""Bins of columns, equal for every split of the rows: exact order statistics.

A column with at most B distinct values has a bin for each. In another, frequent values
have their own bins, and the others have bins between order statistics (`quantiles`).
Edges are midpoints of neighbours, both values of the data. A missing value (NaN) has
its own bin, the last one. Categories have a bin for each value.

Words over the p ranks of equal columns, for F columns of b bits (32 or 64), of which
F_d have at most B distinct values on every rank, for S order statistics selected in
other columns, H values with their own bins there, and E edges:

    2(p-1) · 3F + p(p-1) · F_d B + 2(p-1) · (S ((b/k) (2^k - 1) + 1) + H + E)

In a sparse table, the largest number of distinct values of a rank replaces B.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from scipy import sparse

from dml.boosting.keys import (
    Columns,
    by_owner,
    dense_columns,
    firsts,
    sparse_columns,
    starts_of,
    values_of,
)
from dml.boosting.messages import Grid, add, agree, collect, largest
from dml.boosting.quantiles import BITS, lower_keys, successors
from dml.boosting.settings import Settings

GATHERED = 1 << 22  # keys of all ranks in a message


class Bins(NamedTuple):
    """Bins of the columns of a rank.

    Attributes:
      edges: Edges between bins, or the values of categories, column by column; float64.
      starts: First edge of each column, and the number of edges.
      counts: Number of bins of each column, without the bin of missing values.
      missing: Whether a column has missing values; they have bin counts[column].
      categories: Whether the values of a column are categories.
    """

    edges: np.ndarray
    starts: np.ndarray
    counts: np.ndarray
    missing: np.ndarray
    categories: np.ndarray

    def of(self, column: int) -> np.ndarray:
        """Return the edges of a column."""
        return self.edges[self.starts[column] : self.starts[column + 1]]


def make_bins(grid: Grid, x: Any, settings: Settings, categories: np.ndarray) -> Bins:
    """Return the bins of the columns of a block, dense or sparse; collective."""
    columns, most = x.shape[1], settings.bins
    own = sparse_columns(x) if sparse.issparse(x) else dense_columns(x, most + 1)
    numbers = add(grid.down, np.concatenate([own.present, x.shape[0] - own.present]))
    present, absent = numbers[:columns], numbers[columns:]
    wide = largest(grid.down, np.minimum(own.counts, most + 1))
    sent = wide if sparse.issparse(x) else np.full(columns, most)
    owners, keys = union(grid, own, np.where(wide <= most, sent, 0))
    narrow = wide <= most
    narrow &= np.bincount(owners, minlength=columns) <= most
    problem = ""
    if not narrow[categories].all():
        problem = (
            f"expected at most {most} categories in a column, got more; group the rare "
            "ones, or pass the column as a number"
        )
    agree(grid.everyone, problem)
    kept = narrow[owners]
    parts = [narrow_edges(owners[kept], values_of(keys[kept]), categories)]
    many = np.flatnonzero(~narrow).tolist()
    if many:
        wide_columns = [own.column(f) for f in many]
        lower = lower_keys(grid, wide_columns, present[many].tolist(), most)
        upper = successors(grid, wide_columns, lower)
        for f, low, high in zip(many, lower, upper, strict=True):
            inner = high != np.iinfo(high.dtype).max
            edges = between(values_of(low[inner]), values_of(high[inner]))
            parts.append((np.full(len(edges), f), edges))
    owners, edges = (np.concatenate(each) for each in zip(*parts, strict=True))
    lengths = np.bincount(owners, minlength=columns)
    edges = edges[np.argsort(owners, kind="stable")]
    counts = lengths + ~categories
    return Bins(edges, starts_of(lengths), counts, absent > 0, categories)


def narrow_edges(
    owners: np.ndarray, values: np.ndarray, categories: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns and edges between distinct values, or the categories."""
    named, last = categories[owners], np.ones(len(owners), bool)
    last[:-1] = owners[:-1] != owners[1:]
    above = np.append(values, 0.0)[1:]
    edges = np.where(named, values, between(values, above))
    kept = named | ~last
    return owners[kept], edges[kept]


def union(grid: Grid, own: Columns, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns and distinct keys of all ranks; sizes[f] of column f at most.

    A column of size 0 takes no part. Messages have at most GATHERED keys.
    """
    columns, none = np.arange(len(sizes)), np.uint64(np.iinfo(np.uint64).max)
    owners = np.repeat(columns, own.counts)
    place = np.arange(len(owners)) + (starts_of(sizes) - starts_of(own.counts))[owners]
    taken = sizes[owners] > 0
    padded = np.full(int(sizes.sum()), none)
    padded[place[taken]] = own.distinct[taken]
    owners = np.repeat(columns, sizes)
    found = [(owners[:0], padded[:0])]
    step = max(GATHERED // (grid.down.size if grid.down else 1), 1)
    for begin in range(0, len(padded), step):
        every = collect(grid.down, padded[begin : begin + step])
        some = np.tile(owners[begin : begin + step], len(every))
        found.append(distinct_pairs(some[every.ravel() != none], every[every != none]))
    owners, keys = (np.concatenate(each) for each in zip(*found, strict=True))
    owners, keys = distinct_pairs(owners, keys)
    return owners, keys.astype(own.distinct.dtype)


def distinct_pairs(
    owners: np.ndarray, keys: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct pairs of a column and a key, ordered."""
    owners, keys = by_owner(owners, keys)
    first = firsts(owners, keys)
    return owners[first], keys[first]


def between(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the midpoints, or `low` where rounding leaves no number between."""
    middle = low / 2 + high / 2
    return np.where((low <= middle) & (middle < high), middle, low)


def hints_of(edges: np.ndarray) -> np.ndarray:
    """Return the number of edges below the float32 numbers with equal upper 16 bits."""
    least = np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)  # keys
    with np.errstate(invalid="ignore"):
        values = np.nan_to_num(values_of(least), nan=np.inf, posinf=np.inf)
    values[: 1 << 7] = -np.inf  # negative NaN
    first = np.searchsorted(values, edges, side="right")  # of the numbers above an edge
    return np.cumsum(np.bincount(first, minlength=1 << 16)[: 1 << 16]).astype(np.uint8)


@njit(cache=True, nogil=True)
def assign(column, edges, hints, category, missing, out):
    """Write the bin of each value of a column: the number of edges below it.

    The search begins at the hint of the value's upper bits; it ends at the same bin
    from any other.
    """
    length = len(edges)
    for i in range(len(column)):
        value = np.float64(column[i])
        if value != value:
            out[i] = missing
            continue
        bits = np.int64(np.float32(value).view(np.uint32))
        place = np.int64(
            hints[(~bits if bits >> 31 else bits | 1 << 31) >> 16 & 0xFFFF]
        )
        while place > 0 and edges[place - 1] >= value:
            place -= 1
        while place < length and edges[place] < value:
            place += 1
        if category and (place == length or edges[place] != value):
            place = missing  # a category that training did not see
        out[i] = place


def words(
    p: int, columns: int, sent: int, bits: int, wide: tuple[int, int, int]
) -> int:
    """Return the words that the p ranks of equal columns send in `make_bins`.

    `sent` is the number of words of a rank for columns with few values: B for each in
    a dense table. `wide` has the numbers of order statistics, of values with their own
    bins, and of keys below edges, over all columns with more than B distinct values.
    """
    statistics, frequent, edges = wide
    selection = statistics * (bits // BITS * ((1 << BITS) - 1) + 1) + frequent + edges
    return (p - 1) * (6 * columns + p * sent + 2 * selection)
