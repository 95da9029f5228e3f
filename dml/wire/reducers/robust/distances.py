"""Squared distances of vectors by differences of their coordinates, compiled.

The form |x|² + |y|² - 2xy is not used: for vectors with large means its terms cancel
(true distance 20, mean 1000, 10⁵ coordinates: 384 in float32).

Squares are added in float32 in a tile of columns, and in float64 over tiles. A sum that
is too large or too small for that, such as those of rows of 1e30 or of copies, is
computed again in float64.
"""

import numpy as np
from numba import njit

from dml.wire.reducers.robust.threads import Run

TILE = 1024  # columns whose squares are added in float32
PART = 1 << 17  # columns that one thread adds; order matters: the same for all threads
LEAST, MOST = 1e-24, 1e38  # of sums whose squares are accurate in float32


def pairs(rows_NxD: np.ndarray, run: Run) -> np.ndarray:
    """Return the squared distances of all pairs of rows; zero on the diagonal."""
    count, length = rows_NxD.shape

    def add(part: slice) -> np.ndarray:
        sums_NxN = np.zeros((count, count))
        add_pairs(rows_NxD, part.start, part.stop, sums_NxN)
        return sums_NxN

    squares_NxN = np.zeros((count, count))
    for sums_NxN in run(add, length, PART):
        squares_NxN += sums_NxN
    correct_pairs(rows_NxD, squares_NxN)
    return squares_NxN + squares_NxN.T


def to_vector(rows_NxD: np.ndarray, vector: np.ndarray, run: Run) -> np.ndarray:
    """Return the squared distances of all rows to a vector."""
    count, length = rows_NxD.shape

    def add(part: slice) -> np.ndarray:
        sums_N = np.zeros(count)
        add_squares(rows_NxD, vector, part.start, part.stop, sums_N)
        return sums_N

    squares_N = np.zeros(count)
    for sums_N in run(add, length, PART):
        squares_N += sums_N
    correct_squares(rows_NxD, vector, squares_N)
    return squares_N


# Four rows at once: the values of the other row are loaded once.


@njit(nogil=True, cache=True)
def add_pairs(rows, start, stop, sums):
    """Add the squared distances of rows i < j in columns start to stop - 1."""
    n = len(rows)
    for first in range(start, stop, TILE):
        last = min(first + TILE, stop)
        for i in range(n):
            row = rows[i, first:last]
            for j in range(i + 1, n - 3, 4):
                add_four(row, rows, j, first, last, sums[i])
            for j in range(n - (n - i - 1) % 4, n):
                sums[i, j] += squares(row, rows[j, first:last])


@njit(nogil=True, cache=True)
def add_squares(rows, vector, start, stop, sums):
    """Add the squared distances of rows to a vector in columns start to stop - 1."""
    n = len(rows)
    for first in range(start, stop, TILE):
        last = min(first + TILE, stop)
        for j in range(0, n - 3, 4):
            add_four(vector[first:last], rows, j, first, last, sums)
        for j in range(n - n % 4, n):
            sums[j] += squares(vector[first:last], rows[j, first:last])


@njit(nogil=True, cache=True)
def add_four(row, rows, j, first, last, sums):
    """Add the squared distances of a row to rows j to j + 3."""
    w, x, y, z = squares_of_four(
        row,
        rows[j, first:last],
        rows[j + 1, first:last],
        rows[j + 2, first:last],
        rows[j + 3, first:last],
    )
    sums[j] += w
    sums[j + 1] += x
    sums[j + 2] += y
    sums[j + 3] += z


@njit(nogil=True, cache=True, fastmath={"reassoc", "nsz", "contract"})
def squares_of_four(row, a, b, c, d):
    """Return four squared distances, added in the order of vector registers."""
    w = x = y = z = np.float32(0)
    for k in range(len(row)):
        value = row[k]
        w += (value - a[k]) * (value - a[k])
        x += (value - b[k]) * (value - b[k])
        y += (value - c[k]) * (value - c[k])
        z += (value - d[k]) * (value - d[k])
    return w, x, y, z


@njit(nogil=True, cache=True, fastmath={"reassoc", "nsz", "contract"})
def squares(a, b):
    """Return a squared distance, added in the order of vector registers."""
    total = np.float32(0)
    for k in range(len(a)):
        total += (a[k] - b[k]) * (a[k] - b[k])
    return total


# The same in float64.


@njit(nogil=True, cache=True)
def correct_pairs(rows, sums):
    """Compute the sums of rows i < j again that are not accurate in float32."""
    for i in range(len(rows)):
        for j in range(i + 1, len(rows)):
            if not LEAST <= sums[i, j] <= MOST:
                sums[i, j] = wide_squares(rows[i], rows[j])


@njit(nogil=True, cache=True)
def correct_squares(rows, vector, sums):
    """Compute the sums again that are not accurate in float32."""
    for j in range(len(rows)):
        if not LEAST <= sums[j] <= MOST:
            sums[j] = wide_squares(vector, rows[j])


@njit(nogil=True, cache=True, fastmath={"reassoc", "nsz", "contract"})
def wide_squares(a, b):
    """Return a squared distance, added in float64."""
    total = 0.0
    for k in range(len(a)):
        step = np.float64(a[k]) - np.float64(b[k])
        total += step * step
    return total
