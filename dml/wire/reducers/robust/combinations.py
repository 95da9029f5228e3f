"""Means and weighted sums of rows, compiled.

The value of a column does not depend on other columns: a sum has the same bits in
slices of any length.
"""

import numpy as np
from numba import njit

from dml.wire.reducers.robust.threads import Run

TILE = 1024  # columns that are summed at once, in the cache of a core
PART = 1 << 16  # columns of a thread's part


def scaled_sum(rows_NxD: np.ndarray, factor: float, run: Run) -> np.ndarray:
    """Return a factor times the sum of all rows, added in order in float64."""
    sums = np.empty(rows_NxD.shape[1], np.float32)

    def call(part: slice) -> None:
        write_sums(rows_NxD, part.start, part.stop, factor, sums)

    list(run(call, len(sums), PART))
    return sums


def weighted_sums(
    rows_NxD: np.ndarray, weights_KxN: np.ndarray, run: Run
) -> np.ndarray:
    """Return sums of weights times rows; rows of weight 0 are not read."""
    weights_KxN = weights_KxN.astype(np.float32)
    sums_KxD = np.empty((len(weights_KxN), rows_NxD.shape[1]), np.float32)
    # the rows of each sum in order, padded by -1
    zero_KxN = weights_KxN == 0
    used_KxN = np.argsort(zero_KxN, axis=1, kind="stable")
    used_KxN[np.sort(zero_KxN, axis=1)] = -1

    def call(part: slice) -> None:
        write_weighted(rows_NxD, weights_KxN, used_KxN, part.start, part.stop, sums_KxD)

    list(run(call, rows_NxD.shape[1], PART))
    return sums_KxD


@njit(nogil=True, cache=True)
def write_sums(rows, start, stop, factor, sums):
    """Write the scaled sums of columns start to stop - 1."""
    total = np.empty(TILE)
    for first in range(start, stop, TILE):
        last = min(first + TILE, stop)
        total[:] = 0
        for n in range(len(rows)):
            add_row(rows[n, first:last], total)
        scale_row(total, factor, sums[first:last])


@njit(nogil=True, cache=True)
def add_row(row, total):
    """Add float32 values to sums in float64."""
    for k in range(len(row)):
        total[k] += row[k]


@njit(nogil=True, cache=True)
def scale_row(total, factor, row):
    """Write sums times a factor as float32."""
    for k in range(len(row)):
        row[k] = total[k] * factor


@njit(nogil=True, cache=True)
def write_weighted(rows, weights, used, start, stop, sums):
    """Write the weighted sums of columns start to stop - 1."""
    n = weights.shape[1]
    for first in range(start, stop, TILE):
        last = min(first + TILE, stop)
        for k in range(len(weights)):
            total = sums[k, first:last]
            total[:] = 0
            m = 0
            while m + 4 <= n and used[k, m + 3] >= 0:
                add_four(
                    total,
                    (
                        weights[k, used[k, m]],
                        weights[k, used[k, m + 1]],
                        weights[k, used[k, m + 2]],
                        weights[k, used[k, m + 3]],
                    ),
                    rows[used[k, m], first:last],
                    rows[used[k, m + 1], first:last],
                    rows[used[k, m + 2], first:last],
                    rows[used[k, m + 3], first:last],
                )
                m += 4
            while m < n and used[k, m] >= 0:
                add_one(total, weights[k, used[k, m]], rows[used[k, m], first:last])
                m += 1


@njit(nogil=True, cache=True)
def add_four(total, weights, a, b, c, d):
    """Add four weighted rows, one after another."""
    w, x, y, z = weights
    for k in range(len(total)):
        total[k] = total[k] + w * a[k] + x * b[k] + y * c[k] + z * d[k]


@njit(nogil=True, cache=True)
def add_one(total, weight, row):
    """Add a weighted row."""
    for k in range(len(total)):
        total[k] += weight * row[k]
