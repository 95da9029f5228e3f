"""Vectors of n workers, of which a process has one slice of the coordinates.

                     slice 0   slice 1        what a rule reads:
    vector 0        0.4 -0.1 |  0.0 -0.5
    vector 1        0.3 -0.2 |  0.1 -0.4      columns, which are in one slice, and
    vector 2       99.0  9.9 | -7.0  3.1      sums over columns, such as distances

Sums over columns are added over all slices by `total` and have equal bits on all ranks.
So all ranks compute equal weights of the vectors, and a slice of the estimate each.

Distances of combinations are those of real vectors. They also follow from the squared
distances of their parts, but not in floating point: with a vector of 1e30, terms of
1e60 would cancel.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import njit

from dml.types import identity
from dml.wire.reducers.robust import combinations, distances
from dml.wire.reducers.robust.threads import Run, serially

Total = Callable[[np.ndarray], np.ndarray]  # sums a small array over all slices
PART = 1 << 16  # columns of a thread's part


class Points(NamedTuple):
    """One slice of n vectors; vector i is scale · rows[i].

    Attributes:
      rows_NxD: This slice of the rows; float32.
      faulty: Largest number f of vectors that are arbitrary.
      scale: Factor of the vectors. A row is a worker's term of a sum; the number of
        workers times the term is its gradient.
      step: Number of earlier estimates; a seed of random permutations.
      centre: This slice of the last estimate; None: the origin.
      total: Returns the sum of a small float64 array over all slices; collective.
      run: Calls functions of parts of the columns.
    """

    rows_NxD: np.ndarray
    faulty: int
    scale: float = 1.0
    step: int = 0
    centre: np.ndarray | None = None
    total: Total = identity
    run: Run = serially

    @property
    def vectors(self) -> int:
        """Number n of vectors."""
        return len(self.rows_NxD)


def finite(points: Points, checked: bool = False) -> Points:
    """Drop the vectors with a NaN or an infinity; f decreases by their number.

    This is the policy of all rules. With f = 0 no vector is dropped: the estimate is
    then not finite, as an exact sum would be. If no vector
    is dropped, the result is `points`.

    Args:
      points: The vectors.
      checked: Whether all values of this slice are known to be finite.
    """
    if not points.faulty:
        return points
    count, length = points.rows_NxD.shape

    def call(part: slice) -> np.ndarray:
        return count_nonfinite(points.rows_NxD, part.start, part.stop)

    counts_N = np.zeros(count)
    if not checked:
        counts_N = sum(points.run(call, length, PART), counts_N)
    dropped = points.total(counts_N) > 0
    number = int(dropped.sum())
    if not number:
        return points
    return points._replace(
        rows_NxD=points.rows_NxD[~dropped], faulty=max(0, points.faulty - number)
    )


@njit(nogil=True, cache=True)
def count_nonfinite(rows, start, stop):
    """Return how many values of each row are not finite in columns start to stop-1."""
    counts = np.zeros(len(rows))
    for n in range(len(rows)):
        bits, count = rows[n, start:stop].view(np.uint32), 0
        for k in range(len(bits)):
            count += (bits[k] & np.uint32(0x7F800000)) == np.uint32(0x7F800000)
        counts[n] = count
    return counts


def squared_distances(points: Points) -> np.ndarray:
    """Return the n x n squared distances of the vectors; n(n-1)/2 numbers are added."""
    squares_NxN = distances.pairs(points.rows_NxD, points.run)
    upper = np.triu_indices(points.vectors, 1)
    squares = points.total(squares_NxN[upper]) * points.scale**2
    squares_NxN[upper] = squares
    squares_NxN.T[upper] = squares
    return squares_NxN


def lengths(points: Points) -> np.ndarray:
    """Return the lengths of the vectors; n numbers are added."""
    return distances_to(points, np.zeros(points.rows_NxD.shape[1], np.float32))


def distances_to(points: Points, vector: np.ndarray) -> np.ndarray:
    """Return the distances of the vectors to a vector; n numbers are added.

    Args:
      points: The vectors.
      vector: This slice of the other vector.
    """
    unscaled = vector / np.float32(points.scale)
    squares = distances.to_vector(points.rows_NxD, unscaled, points.run)
    return np.sqrt(points.total(squares)) * points.scale


def combine(points: Points, weights_N: np.ndarray) -> np.ndarray:
    """Return this slice of the sum of weights times vectors, in order of vectors."""
    weights_1xN = weights_N[None] * points.scale
    return combinations.weighted_sums(points.rows_NxD, weights_1xN, points.run)[0]


def mean_of(points: Points, selected: np.ndarray) -> np.ndarray:
    """Return this slice of the mean of vectors with these indices."""
    weights_N = np.zeros(points.vectors)
    weights_N[selected] = 1 / len(selected)
    return combine(points, weights_N)


def mix(points: Points, weights_KxN: np.ndarray) -> Points:
    """Return k points, each a sum of weights times vectors."""
    rows_KxD = combinations.weighted_sums(points.rows_NxD, weights_KxN, points.run)
    return points._replace(rows_NxD=rows_KxD)
