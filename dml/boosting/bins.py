"""Bins of columns, equal for every split of the rows: exact order statistics.

    keys of a column   0000……    a key has the bits of its number, so that keys and
                       0001……    numbers have one order. A round fixes k bits:
              r-th ──► 0010……    count the keys below each of 2^k - 1 prefixes on all
                       ……        ranks, keep the prefix with the r-th key

A column with at most B distinct values has a bin for each. In another, a value with at
least n'/B' rows has its own bin, where n' rows and B' bins are left without such
values; this is repeated until none is found. The others have bins between the order
statistics of ranks ⌈jn'/B'⌉, j = 1 … B'-1. Edges are midpoints of neighbours, both
values of the data. A missing value (NaN) has its own bin, the last one, and is not
counted in n. Categories have a bin for each value.

Words over the p ranks of equal columns, for F columns of b bits (32 or 64), of which
F_d have at most B distinct values on every rank, for S order statistics selected in
other columns, H values with their own bins there, and E edges:

    2(p-1) · 3F + p(p-1) · F_d B + 2(p-1) · (S ((b/k) (2^k - 1) + 1) + H + E)
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from dml.boosting.messages import Grid, add, agree, collect, largest, least
from dml.boosting.settings import Settings

BITS = 2  # k
BLOCK = 4096  # rows


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
    last = word(8 * bits.itemsize - 1)
    bits ^= -(bits >> last) | (word(1) << last)  # all bits of negative numbers
    return bits


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
    ordered = [sorted_keys(column) for column in by_column(x)]
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
        lower = lower_keys(grid, wide_keys, present[many].tolist(), most)
        upper = successors(grid, wide_keys, lower)
        for f, low, high in zip(many, lower, upper, strict=True):
            inner = high != np.iinfo(high.dtype).max
            edges[f] = between(values_of(low[inner]), values_of(high[inner]))
    sizes = [len(e) + (not c) for e, c in zip(edges, categories, strict=True)]
    return Bins(edges, np.array(sizes, np.int64), absent > 0, categories)


def by_column(x: np.ndarray) -> np.ndarray:
    """Return a transposed copy, by blocks that fit in the cache."""
    made = np.empty(x.shape[::-1], x.dtype)
    for first in range(0, len(x), BLOCK):
        made[:, first : first + BLOCK] = x[first : first + BLOCK].T
    return made


def sorted_keys(column: np.ndarray) -> np.ndarray:
    """Sort a column; return the keys of the values that are not missing, ascending."""
    column.sort()  # NaN at the end
    return keys_of(column[: np.searchsorted(column, np.nan)])


@njit(cache=True, nogil=True)
def distinct_keys(keys, most):
    """Return the distinct keys of a sorted column, at most `most` of them."""
    found, count = np.empty(most, keys.dtype), 0
    for key in keys:
        if count == 0 or key != found[count - 1]:
            if count == most:
                break
            found[count] = key
            count += 1
    return found[:count]


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


def lower_keys(
    grid: Grid, keys: list[np.ndarray], rows: list[int], most: int
) -> list[np.ndarray]:
    """Return the keys below the edges of each column, at most `most` - 1, ascending."""
    around = [column[:0] for column in keys]  # edges on both sides of frequent values
    lower, rest, active = [*around], [*keys], [*range(len(keys))]
    while active:
        bins = {f: most - len(around[f]) for f in active}
        wanted = [-(-np.arange(1, bins[f]) * rows[f] // bins[f]) for f in active]
        chosen = select(grid, [rest[f] for f in active], wanted)
        counts = occurrences(grid, [rest[f] for f in active], chosen)
        frequent = {}
        for f, found, count in zip(active, chosen, counts, strict=True):
            lower[f] = np.union1d(around[f], found)
            values, first = np.unique(found, return_index=True)
            count = count[first]
            many = count * bins[f] >= rows[f]
            frequent[f], rows[f] = values[many], rows[f] - int(count[many].sum())
        before = predecessors(grid, [keys[f] for f in active], [*frequent.values()])
        active = []
        for (f, own), below in zip(frequent.items(), before, strict=True):
            edges = np.union1d(around[f], np.concatenate([own, below[below > 0]]))
            if len(own) and len(edges) < most:
                around[f], rest[f] = edges, rest[f][~contained(rest[f], own)]
                active.append(f)
    return lower


def slices(parts: list[np.ndarray]) -> list[slice]:
    """Return the place of each array in their concatenation."""
    ends = np.cumsum([len(part) for part in parts]).tolist()
    return [slice(end - len(part), end) for part, end in zip(parts, ends, strict=True)]


def select(
    grid: Grid, keys: list[np.ndarray], wanted: list[np.ndarray]
) -> list[np.ndarray]:
    """Return the keys of the ranks `wanted` (from 1) of each column, over all ranks."""
    dtype, goal, places = keys[0].dtype, np.concatenate(wanted), slices(wanted)
    low = np.zeros(len(goal), dtype)
    steps = np.arange(1, 1 << BITS).astype(dtype)
    for shift in range(8 * dtype.itemsize - BITS, -1, -BITS):
        probes = low[:, None] + (steps << dtype.type(shift))
        below = np.empty(probes.shape, np.int64)
        for column, place in zip(keys, places, strict=True):
            below[place] = np.searchsorted(column, probes[place])
        add(grid.down, below)
        digit = (below < goal[:, None]).sum(axis=1).astype(dtype)
        low += digit << dtype.type(shift)
    return [low[place] for place in places]


def occurrences(
    grid: Grid, keys: list[np.ndarray], chosen: list[np.ndarray]
) -> list[np.ndarray]:
    """Return the number of rows of all ranks with each chosen key."""
    counts = [
        np.searchsorted(column, found, side="right") - np.searchsorted(column, found)
        for column, found in zip(keys, chosen, strict=True)
    ]
    total = add(grid.down, np.concatenate(counts))
    return [total[place] for place in slices(chosen)]


def predecessors(
    grid: Grid, keys: list[np.ndarray], chosen: list[np.ndarray]
) -> list[np.ndarray]:
    """Return the largest key of all ranks below each chosen key; none: 0."""
    mirrored = [~column[::-1] for column in keys]
    return [~key for key in successors(grid, mirrored, [~key for key in chosen])]


def successors(
    grid: Grid, keys: list[np.ndarray], chosen: list[np.ndarray]
) -> list[np.ndarray]:
    """Return the smallest key of all ranks above each chosen key; none: all ones."""
    after = []
    for column, found in zip(keys, chosen, strict=True):
        place = np.searchsorted(column, found, side="right")
        own = np.full(len(found), np.iinfo(np.uint64).max, np.uint64)
        inside = place < len(column)
        own[inside] = column[place[inside]]
        after.append(own)
    every = least(grid.down, np.concatenate(after))
    return [every[place].astype(chosen[0].dtype) for place in slices(chosen)]


def contained(keys: np.ndarray, some: np.ndarray) -> np.ndarray:
    """Return whether each key is one of `some`, which are ascending."""
    return some[np.searchsorted(some[:-1], keys)] == keys


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
    p: int, columns: int, few: int, bins: int, bits: int, wide: tuple[int, int, int]
) -> int:
    """Return the words that the p ranks of equal columns send in `make_bins`.

    `wide` has the numbers of order statistics, of values with their own bins, and of
    keys below edges, over all columns with more than `bins` distinct values.
    """
    statistics, frequent, edges = wide
    selection = statistics * (bits // BITS * ((1 << BITS) - 1) + 1) + frequent + edges
    return (p - 1) * (6 * columns + p * few * bins + 2 * selection)
