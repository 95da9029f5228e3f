"""Sums of the sorted values of each column, compiled.

A tile of columns is copied to the cache of a core and sorted there; see `networks`.
"""

import numpy as np
from numba import njit

from dml.wire.reducers.robust.combinations import add_row, scale_row
from dml.wire.reducers.robust.networks import compare_exchange, copy_row, network
from dml.wire.reducers.robust.threads import Run

TILE = 512  # columns that are sorted at once
PART = 1 << 16  # columns of a thread's part


def sum_of_ranks(
    rows_NxD: np.ndarray, first: int, last: int, factor: float, run: Run
) -> np.ndarray:
    """Return, per column, a factor times the sum of sorted values first to last - 1.

    Args:
      rows_NxD: n values of each column; float32, not NaN.
      first: First rank.
      last: Rank after the last one.
      factor: Factor of the sum.
      run: Calls functions of parts of the columns.
    """
    sums = np.empty(rows_NxD.shape[1], np.float32)
    comparators = network(len(rows_NxD), first, last)

    def call(part: slice) -> None:
        write_sums_of_ranks(rows_NxD, part, comparators, (first, last, factor), sums)

    list(run(call, len(sums), PART))
    return sums


def near_median(
    rows_NxD: np.ndarray, count: int, factor: float, run: Run
) -> np.ndarray:
    """Return, per column, a factor times the sum of `count` values near the median.

    They are `count` neighbours in the sorted column, whose greatest distance to the
    median is least; of two such sets the one of lesser values.

    Args:
      rows_NxD: Values of each column; float32, not NaN.
      count: Number of values.
      factor: Factor of the sum.
      run: Calls functions of parts of the columns.
    """
    sums = np.empty(rows_NxD.shape[1], np.float32)
    comparators = network(len(rows_NxD), 0, len(rows_NxD))

    def call(part: slice) -> None:
        write_near_median(rows_NxD, part, comparators, (count, factor), sums)

    list(run(call, len(sums), PART))
    return sums


def majority_signs(rows_NxD: np.ndarray, factor: float, run: Run) -> np.ndarray:
    """Return, per column, the sign of most values times the median of |values|.

    Args:
      rows_NxD: Values of each column; float32, not NaN.
      factor: Factor of the result.
      run: Calls functions of parts of the columns.
    """
    count = len(rows_NxD)
    signs = np.empty(rows_NxD.shape[1], np.float32)
    comparators = network(count, (count - 1) // 2, count // 2 + 1)

    def call(part: slice) -> None:
        write_signs(rows_NxD, part, comparators, factor, signs)

    list(run(call, len(signs), PART))
    return signs


@njit(nogil=True, cache=True)
def write_sums_of_ranks(rows, part, comparators, ranks, sums):
    """Write the sums of a part of the columns; see `sum_of_ranks`."""
    first_rank, last_rank, factor = ranks
    tile, total = np.zeros((len(rows), TILE), np.float32), np.empty(TILE)
    for first in range(part.start, part.stop, TILE):
        last = min(first + TILE, part.stop)
        for n in range(len(rows)):
            copy_row(rows[n, first:last], tile[n])
        compare_exchange(tile, comparators)
        total[:] = 0
        for n in range(first_rank, last_rank):
            add_row(tile[n], total)
        scale_row(total, factor, sums[first:last])


@njit(nogil=True, cache=True)
def write_near_median(rows, part, comparators, count_and_factor, sums):
    """Write the sums of a part of the columns; see `near_median`."""
    count, factor = count_and_factor
    n = len(rows)
    tile = np.zeros((n, TILE), np.float32)
    total, least = np.empty(TILE), np.empty(TILE, np.float32)
    chosen, median = np.empty(TILE), np.empty(TILE, np.float32)
    for first in range(part.start, part.stop, TILE):
        last = min(first + TILE, part.stop)
        for m in range(n):
            copy_row(rows[m, first:last], tile[m])
        compare_exchange(tile, comparators)
        write_middle(tile[(n - 1) // 2], tile[n // 2], median)
        least[:] = np.inf
        for start in range(n - count + 1):
            total[:] = 0
            for m in range(start, start + count):
                add_row(tile[m], total)
            keep_nearest(
                median,
                (tile[start], tile[start + count - 1]),
                total,
                least,
                chosen,
            )
        scale_row(chosen, factor, sums[first:last])


@njit(nogil=True, cache=True)
def write_middle(lower, upper, median):
    for k in range(len(median)):
        median[k] = (lower[k] + upper[k]) * np.float32(0.5)


@njit(nogil=True, cache=True)
def keep_nearest(median, ends, total, least, chosen):
    """Replace the chosen sums by those of neighbours that are nearer to the median."""
    lowest, highest = ends
    for k in range(len(median)):
        below, above = median[k] - lowest[k], highest[k] - median[k]
        farthest = below if below > above else above
        nearer = farthest < least[k]
        least[k] = farthest if nearer else least[k]
        chosen[k] = total[k] if nearer else chosen[k]


@njit(nogil=True, cache=True)
def write_signs(rows, part, comparators, factor, signs):
    """Write the signs of a part of the columns; see `majority_signs`."""
    n = len(rows)
    tile, negative = np.zeros((n, TILE), np.float32), np.empty(TILE, np.int32)
    for first in range(part.start, part.stop, TILE):
        last = min(first + TILE, part.stop)
        negative[:] = 0
        for m in range(n):
            copy_sizes(rows[m, first:last], tile[m], negative)
        compare_exchange(tile, comparators)
        write_signed(
            (tile[(n - 1) // 2], tile[n // 2]), negative, n, factor, signs[first:last]
        )


@njit(nogil=True, cache=True)
def copy_sizes(row, sizes, negative):
    """Copy absolute values, and count the negative ones."""
    for k in range(len(row)):
        sizes[k] = abs(row[k])
        negative[k] += row[k] < 0


@njit(nogil=True, cache=True)
def write_signed(sizes, negative, n, factor, signs):
    """Write the middle of two sizes with the sign of most of n values."""
    lower, upper = sizes
    for k in range(len(signs)):
        size = (lower[k] + upper[k]) * np.float32(0.5) * factor
        signs[k] = -size if 2 * negative[k] > n else size
