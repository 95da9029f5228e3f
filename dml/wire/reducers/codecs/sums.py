"""Sums of float32 values in float64, in an order that is the same on all machines."""

import numpy as np
from numba import njit

LANES = 64  # partial sums, which vector instructions of any width can add to


@njit(nogil=True, cache=True)
def sum_of_squares(values):
    """Return the sum of squares."""
    sums = np.zeros(LANES)
    full = len(values) // LANES * LANES
    for first in range(0, full, LANES):
        for n in range(LANES):
            value = np.float64(values[first + n])
            sums[n] += value * value
    for n in range(full, len(values)):
        value = np.float64(values[n])
        sums[n - full] += value * value
    return sum_by_halves(sums)


@njit(nogil=True, cache=True)
def sum_by_halves(sums):
    """Return the sum of LANES values, which are overwritten."""
    half = LANES // 2
    while half:
        for n in range(half):
            sums[n] += sums[n + half]
        half //= 2
    return sums[0]
