"""Bins of columns, equal for every split of the rows: exact order statistics.

    keys of a column   0000……    a key has the bits of its number, so that keys and
                       0001……    numbers have one order. A round fixes k bits:
              r-th ──► 0010……    count the keys below each of 2^k - 1 prefixes on all
                       ……        ranks, keep the prefix with the r-th key

A column with at most B distinct values has a bin for each. Another has bins between the
order statistics of ranks ⌈jn/B⌉, j = 1 … B-1. Edges are midpoints of an order statistic
and its successor, both values of the data. A missing value (NaN) has its own bin, the
last one, and is not counted in n. Categories have a bin for each value.

Words over the p ranks of equal columns, for F columns of b bits (32 or 64), of which
F_d have at most B distinct values on every rank, and F_s more than B on all ranks:

    2(p-1) · 3F + p(p-1) · F_d B + 2(p-1) · F_s (B-1) ((b/k) (2^k - 1) + 1)
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from dml.boosting.messages import Grid, add, agree, collect, largest, least
from dml.boosting.settings import Settings

BITS = 2  # k


class Bins(NamedTuple):
    """Bins of the columns of a rank.

    Attributes:
      edges: By column: the edges between bins, or the values of categories; float64.
      counts: Number of bins of each column, without the bin of missing values.
      missing: Whether a column has missing values; they have bin counts[column].
      categories: Whether the values of a column are categories.
    """

    edges: list[np.ndarray]
    counts: np.ndarray
    missing: np.ndarray
    categories: np.ndarray


def keys_of(values: np.ndarray) -> np.ndarray:
    """Return unsigned integers in the order of the numbers; -0 and 0 are equal."""
    word = np.uint32 if values.dtype == np.float32 else np.uint64
    bits = (values + values.dtype.type(0)).view(word)
    top = word(1 << (8 * bits.itemsize - 1))
    return np.where(bits & top, ~bits, bits | top)


def values_of(keys: np.ndarray) -> np.ndarray:
    """Return the numbers of keys, as float64."""
    top = keys.dtype.type(1 << (8 * keys.itemsize - 1))
    bits = np.where(keys & top, keys ^ top, ~keys)
    return bits.view(np.dtype(f"f{keys.itemsize}")).astype(np.float64)


def make_bins(
    grid: Grid, x: np.ndarray, settings: Settings, categories: np.ndarray
) -> Bins:
    """Return the bins of the columns of a block; collective."""
    columns, most = x.shape[1], settings.bins
    ordered = [sorted_keys(x[:, f]) for f in range(columns)]
    counts = np.array([len(keys) for keys in ordered], np.int64)
    numbers = add(grid.down, np.concatenate([counts, len(x) - counts]))
    present, absent = numbers[:columns], numbers[columns:]
    distinct = [distinct_keys(keys, most + 1) for keys in ordered]
    wide = largest(grid.down, np.array([len(d) for d in distinct], np.int64))
    found: dict[int, np.ndarray] = {}
    few = np.flatnonzero(wide <= most).tolist()
    for f, keys in zip(few, union(grid, distinct, few, most), strict=True):
        found[f] = keys
    problem = ""
    for f in np.flatnonzero(categories).tolist():
        if f not in found or len(found[f]) > most:
            problem = (
                f"expected at most {most} categories in a column, got more; group the "
                "rare ones, or pass the column as a number"
            )
    agree(grid.everyone, problem)
    edges: list[np.ndarray] = [np.zeros(0)] * columns
    for f, keys in found.items():
        values = values_of(keys)
        edges[f] = values if categories[f] else between(values[:-1], values[1:])
    many = [f for f in range(columns) if f not in found or len(found[f]) > most]
    if many:
        wide_keys = [ordered[f] for f in many]
        wanted = -(-np.arange(1, most) * present[many][:, None] // most)
        chosen = select(grid, wide_keys, wanted)
        after = successors(grid, wide_keys, chosen)
        for f, low, high in zip(many, chosen, after, strict=True):
            none = np.iinfo(high.dtype).max
            inner = (high != none) & np.concatenate([[True], low[1:] != low[:-1]])
            edges[f] = between(values_of(low[inner]), values_of(high[inner]))
    sizes = [len(e) + (not c) for e, c in zip(edges, categories, strict=True)]
    return Bins(edges, np.array(sizes, np.int64), absent > 0, categories)


def sorted_keys(column: np.ndarray) -> np.ndarray:
    """Return the keys of the values that are not missing, in ascending order."""
    values = np.sort(column)  # NaN at the end
    return keys_of(values[: np.searchsorted(values, np.nan)])


def distinct_keys(keys: np.ndarray, most: int) -> np.ndarray:
    """Return the distinct keys of a sorted column, at most `most` of them."""
    if not len(keys):
        return keys
    return keys[np.concatenate([[True], keys[1:] != keys[:-1]])][:most]


def union(
    grid: Grid, distinct: list[np.ndarray], few: list[int], most: int
) -> list[np.ndarray]:
    """Return the distinct keys of all ranks, for columns with few on each rank."""
    if not few:
        return []
    dtype = distinct[0].dtype
    own = np.full((len(few), most), np.iinfo(np.uint64).max, np.uint64)
    for i, f in enumerate(few):
        own[i, : len(distinct[f])] = distinct[f]
    every = collect(grid.down, own)
    none = np.iinfo(np.uint64).max
    gathered = (np.unique(every[:, i]) for i in range(len(few)))
    return [keys[keys != none].astype(dtype) for keys in gathered]


def select(grid: Grid, keys: list[np.ndarray], wanted: np.ndarray) -> np.ndarray:
    """Return the keys of the ranks `wanted` (from 1) of each column, over all ranks."""
    dtype = keys[0].dtype
    low = np.zeros(wanted.shape, dtype)
    steps = np.arange(1, 1 << BITS).astype(dtype)
    for shift in range(8 * dtype.itemsize - BITS, -1, -BITS):
        probes = low[:, :, None] + (steps << dtype.type(shift))
        below = np.empty(probes.shape, np.int64)
        for f, column in enumerate(keys):
            below[f] = np.searchsorted(column, probes[f].reshape(-1)).reshape(
                below[f].shape
            )
        add(grid.down, below)
        digit = (below < wanted[:, :, None]).sum(axis=2).astype(dtype)
        low += digit << dtype.type(shift)
    return low


def successors(grid: Grid, keys: list[np.ndarray], chosen: np.ndarray) -> np.ndarray:
    """Return the smallest key of all ranks above each chosen key; none: all ones."""
    dtype = chosen.dtype
    after = np.full(chosen.shape, np.iinfo(np.uint64).max, np.uint64)
    for f, column in enumerate(keys):
        place = np.searchsorted(column, chosen[f], side="right")
        inside = place < len(column)
        after[f, inside] = column[place[inside]]
    return least(grid.down, after).astype(dtype)


def between(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the midpoints, or `low` where rounding leaves no number between."""
    middle = low / 2 + high / 2
    return np.where((low <= middle) & (middle < high), middle, low)


@njit(cache=True, nogil=True)
def assign(column, edges, category, missing, out):
    """Write the bin of each value of a column: the number of edges below it."""
    length = len(edges)
    for i in range(len(column)):
        value = np.float64(column[i])
        if value != value:
            out[i] = missing
            continue
        place, rest = 0, length
        while rest > 1:
            half = rest >> 1
            if edges[place + half - 1] < value:
                place += half
            rest -= half
        if length > 0 and edges[place] < value:
            place += 1
        if category and (place == length or edges[place] != value):
            place = missing  # a category that training did not see
        out[i] = place


def words(p: int, columns: int, few: int, many: int, bins: int, bits: int) -> int:
    """Return the words that the p ranks of equal columns send in `make_bins`."""
    rounds = bits // BITS
    selection = many * (bins - 1) * (rounds * ((1 << BITS) - 1) + 1)
    return (p - 1) * (6 * columns + p * few * bins + 2 * selection)
