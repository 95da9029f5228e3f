"""Sorting networks that order each column of a matrix, compiled.

    x0 ──┬────┬──── least        a comparator ┬ moves the lesser value up
         │    │                  and the greater one down
    x1 ──┴─┬──┴─┬──
           │    │                all columns of a tile pass a comparator at once,
    x2 ────┴────┴── greatest     by vector instructions and without branches

Batcher's merge exchange sorts n values by about n lg² n / 4 comparators. Comparators
that no wanted output depends on are left out.
"""

from functools import lru_cache

import numpy as np
from numba import njit

TILE = 256  # columns that are sorted at once, in the cache of a core
BOTH, LESSER, GREATER = 0, 1, 2  # values of a comparator that are used later


@lru_cache(maxsize=256)
def network(count: int, first: int, last: int) -> np.ndarray:
    """Return comparators (i, j, used) that move outputs first to last - 1 in place.

    Args:
      count: Number of values.
      first: First wanted output of the sorted values.
      last: Output after the last wanted one.
    """
    needed = np.zeros(count, bool)
    needed[first:last] = True
    pruned = []
    for i, j in reversed(merge_exchange(count)):
        if needed[i] or needed[j]:
            used = BOTH if needed[i] and needed[j] else GREATER if needed[j] else LESSER
            pruned.append((i, j, used))
            needed[i] = needed[j] = True
    return np.array(pruned[::-1], np.int64).reshape(-1, 3)


def merge_exchange(count: int) -> list[tuple[int, int]]:
    """Return the comparators of merge exchange (Batcher; Knuth 5.2.2, algorithm M)."""
    comparators = []
    power = 1 << max(0, (count - 1).bit_length() - 1)
    step = power
    while step > 0:
        block, offset, distance = power, 0, step
        while True:
            comparators += [
                (i, i + distance) for i in range(count - distance) if i & step == offset
            ]
            if block == step:
                break
            distance, block, offset = block - step, block // 2, step
        step //= 2
    return comparators


def sorted_rows(rows: np.ndarray) -> np.ndarray:
    """Return the matrix with sorted columns."""
    ordered = np.array(rows)
    compare(ordered, network(len(rows), 0, len(rows)))
    return ordered


def mean_of_ranks(rows: np.ndarray, first: int, last: int) -> np.ndarray:
    """Return, per column, the mean of its sorted values first to last - 1.

    The values are added in float64. If all values are wanted, they are not sorted.
    """
    means = np.empty(rows.shape[1], np.float32)
    comparators = network(len(rows), first, last)
    if last - first == len(rows):
        comparators = comparators[:0]
    add_ranks(rows, comparators, first, last, means)
    return means


@njit(nogil=True, cache=True)
def add_ranks(rows, comparators, first, last, means):
    """Sort tiles of columns; write the mean of the sorted values first to last - 1."""
    n, length = rows.shape
    tile = np.empty((n, TILE), np.float32)
    total = np.empty(TILE)
    for start in range(0, length, TILE):
        width = min(TILE, length - start)
        for i in range(n):
            tile[i, :width] = rows[i, start : start + width]
        compare_exchange(tile, comparators)
        total[:] = 0
        for i in range(first, last):
            row = tile[i]
            for k in range(TILE):
                total[k] += row[k]
        for k in range(width):
            means[start + k] = total[k] / (last - first)


@njit(nogil=True, cache=True)
def compare(rows, comparators):
    """Sort the columns of a matrix in place, by tiles."""
    n, length = rows.shape
    tile = np.empty((n, TILE), np.float32)
    for start in range(0, length, TILE):
        width = min(TILE, length - start)
        for i in range(n):
            tile[i, :width] = rows[i, start : start + width]
        compare_exchange(tile, comparators)
        for i in range(n):
            rows[i, start : start + width] = tile[i, :width]


@njit(nogil=True, cache=True, inline="always")
def compare_exchange(tile, comparators):
    """Apply all comparators to the TILE columns of a tile."""
    for c in range(len(comparators)):
        upper, lower = tile[comparators[c, 0]], tile[comparators[c, 1]]
        used = comparators[c, 2]
        if used == BOTH:
            for k in range(TILE):
                x, y = upper[k], lower[k]
                upper[k] = x if x < y else y
                lower[k] = y if x < y else x
        elif used == LESSER:
            for k in range(TILE):
                x, y = upper[k], lower[k]
                upper[k] = x if x < y else y
        else:
            for k in range(TILE):
                x, y = upper[k], lower[k]
                lower[k] = y if x < y else x
