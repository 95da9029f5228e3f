"""Order statistics of columns over all ranks, by counting keys.

    keys of a column   0000……    a round fixes k bits: count the keys below each of
                       0001……    2^k - 1 prefixes on all ranks, keep the prefix with
          r-th ──►     0010……    the r-th key
                       ……

A value with at least n'/B' rows has its own bin, where n' rows and B' bins are left
without such values; this is repeated until none is found. The others have bins between
the order statistics of ranks ⌈jn'/B'⌉, j = 1 … B'-1.
"""

import numpy as np

from dml.boosting.keys import Column, below, zero_key
from dml.boosting.messages import Grid, add, least

BITS = 2  # k


def lower_keys(
    grid: Grid, columns: list[Column], rows: list[int], most: int
) -> list[np.ndarray]:
    """Return the keys below the edges of each column, at most `most` - 1, ascending."""
    around = [keys[:0] for keys, _ in columns]  # edges on both sides of frequent values
    lower, rest, active = [*around], [*columns], [*range(len(columns))]
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
        before = predecessors(grid, [columns[f] for f in active], [*frequent.values()])
        active = []
        for (f, own), lesser in zip(frequent.items(), before, strict=True):
            edges = np.union1d(around[f], np.concatenate([own, lesser[lesser > 0]]))
            if len(own) and len(edges) < most:
                around[f], rest[f] = edges, without(rest[f], own)
                active.append(f)
    return lower


def slices(parts: list[np.ndarray]) -> list[slice]:
    """Return the place of each array in their concatenation."""
    ends = np.cumsum([len(part) for part in parts]).tolist()
    return [slice(end - len(part), end) for part, end in zip(parts, ends, strict=True)]


def select(
    grid: Grid, columns: list[Column], wanted: list[np.ndarray]
) -> list[np.ndarray]:
    """Return the keys of the ranks `wanted` (from 1) of each column, over all ranks."""
    dtype, goal, places = columns[0].keys.dtype, np.concatenate(wanted), slices(wanted)
    low = np.zeros(len(goal), dtype)
    steps = np.arange(1, 1 << BITS).astype(dtype)
    for shift in range(8 * dtype.itemsize - BITS, -1, -BITS):
        probes = low[:, None] + (steps << dtype.type(shift))
        counts = np.empty(probes.shape, np.int64)
        for column, place in zip(columns, places, strict=True):
            counts[place] = below(column, probes[place])
        add(grid.down, counts)
        digit = (counts < goal[:, None]).sum(axis=1).astype(dtype)
        low += digit << dtype.type(shift)
    return [low[place] for place in places]


def occurrences(
    grid: Grid, columns: list[Column], chosen: list[np.ndarray]
) -> list[np.ndarray]:
    """Return the number of rows of all ranks with each chosen key."""
    counts = [
        below(column, found, "right") - below(column, found)
        for column, found in zip(columns, chosen, strict=True)
    ]
    total = add(grid.down, np.concatenate(counts))
    return [total[place] for place in slices(chosen)]


def predecessors(
    grid: Grid, columns: list[Column], chosen: list[np.ndarray]
) -> list[np.ndarray]:
    """Return the largest key of all ranks below each chosen key; none: 0."""
    mirrored = [Column(~column.keys[::-1]) for column in columns]
    return [~key for key in successors(grid, mirrored, [~key for key in chosen])]


def successors(
    grid: Grid, columns: list[Column], chosen: list[np.ndarray]
) -> list[np.ndarray]:
    """Return the smallest key of all ranks above each chosen key; none: all ones."""
    after = []
    for (keys, _), found in zip(columns, chosen, strict=True):
        place = np.searchsorted(keys, found, side="right")
        own = np.full(len(found), np.iinfo(np.uint64).max, np.uint64)
        inside = place < len(keys)
        own[inside] = keys[place[inside]]
        after.append(own)
    every = least(grid.down, np.concatenate(after))
    return [every[place].astype(chosen[0].dtype) for place in slices(chosen)]


def without(column: Column, some: np.ndarray) -> Column:
    """Return a column without the values of some keys, which are ascending."""
    keys = column.keys
    kept = keys[some[np.searchsorted(some[:-1], keys)] != keys]
    none = zero_key(keys.dtype) in some
    return Column(kept, 0 if none else column.zeros)
