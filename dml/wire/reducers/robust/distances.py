"""Squared distances of vectors by differences, and of combinations of vectors.

The form |x|² + |y|² - 2xy is not used: for vectors with large means its terms cancel
(true distance 20, mean 1000, 10⁵ coordinates: 384 in float32).
"""

import numpy as np
from numba import njit

from dml.wire.reducers.robust.rule import EXTRA, Points, Weights

TILE = 1024  # coordinates whose differences are added in float32


def squared_distances(rows: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """Return the (n+2)x(n+2) squared distances of `Points` in float64.

    Args:
      rows: n x d float32.
      centre: Vector of d elements.
    """
    total = np.zeros((len(rows) + EXTRA, len(rows) + EXTRA))
    points = np.zeros((len(total), TILE), np.float32)
    add_distances(rows, centre, points, total)
    return total + total.T


@njit(nogil=True, cache=True)
def add_distances(rows, centre, points, total):
    """Add the squared distances of points i < j to the upper triangle of `total`."""
    n, length = rows.shape
    for first in range(0, length, TILE):
        width = min(TILE, length - first)
        for i in range(n):
            points[i, :width] = rows[i, first : first + width]
        points[n + 1, :width] = centre[first : first + width]
        for i in range(n + 2):
            for j in range(i + 1, n + 2):
                near = difference(points[i, :width], points[j, :width])
                if not np.isfinite(near):  # the square may be above 3e38
                    near = wide_difference(points[i, :width], points[j, :width])
                total[i, j] += near


@njit(nogil=True, cache=True, fastmath={"reassoc", "nsz", "contract"})
def difference(a, b):
    """Return the squared distance in float32, in the order of vector registers."""
    near = np.float32(0)
    for k in range(len(a)):
        step = a[k] - b[k]
        near += step * step
    return near


@njit(nogil=True, cache=True)
def wide_difference(a, b):
    """Return the squared distance in float64."""
    near = 0.0
    for k in range(len(a)):
        step = np.float64(a[k]) - np.float64(b[k])
        near += step * step
    return near


def mixed(points: Points, weights: Weights) -> tuple[Points, Weights]:
    """Return the distances of combinations, and their weights with origin and centre.

    For a, b with the sum 1 the squared distance is -½ (a-b)ᵀ S (a-b).
    """
    k, size = len(weights), points.vectors + EXTRA
    full = np.zeros((k + EXTRA, size))
    full[:k] = weights
    full[k, -2] = full[k + 1, -1] = 1
    forms = full @ points.squared @ full.T
    diagonal = np.diag(forms)
    squared = forms - (diagonal[:, None] + diagonal) / 2
    np.fill_diagonal(squared, 0)
    return Points(np.maximum(squared, 0), points.step), full
