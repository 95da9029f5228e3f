"""Numbers in fixed point: integers times a power of two, whose sums are exact.

    value · 2^e, rounded        │s│ 30 bits │   FINE: values of leaves, losses
    (fine + 2^12) >> 13         │s│17 bits│     COARSE: histograms

e is chosen so that the largest absolute value, all-reduced or known, is at most 2^30.
Sums of FINE numbers of 2^32 rows fit in 64 bits. FLUSH rows of COARSE numbers fit in 32
bits, so that one addition of 64 bits adds a gradient and a second derivative:

    packed = (g << 32) + h        |Σg| ≤ FLUSH · 2^17 < 2^31,  0 ≤ Σh < 2^31
"""

import math

import numpy as np

from dml.boosting.losses import WHOLE, compiled
from dml.boosting.messages import add, largest
from dml.types import Comm

FINE, SHIFT = 30, 13
FLUSH = (1 << 14) - 1  # rows
MOST = 900  # so that 2^e is a normal number


def exponent(bound: float) -> int:
    """Return e such that bound · 2^e is at most 2^FINE; e is at most MOST."""
    if bound <= 0:
        return 0
    fraction, power = math.frexp(bound)  # a power of two has the fraction 0.5
    return min(FINE - power + (fraction == 0.5), MOST)


def total(comm: Comm | None, values: np.ndarray) -> float:
    """Return the sum over all rows of all ranks; equal for every split of the rows.

    Two all-reduces of one word.
    """
    bound = np.array([np.abs(values).max(initial=0.0)])
    e = exponent(float(largest(comm, bound)[0]))
    sums = np.array([rounded(values, 2.0**e)], np.int64)
    return math.ldexp(float(add(comm, sums)[0]), -e)


@compiled
def rounded(values, scale):
    """Return the sum of the rounded multiples of values."""
    result = np.int64(0)
    for value in values:
        result += np.int64(np.floor(value * scale + 0.5))
    return result


@compiled
def quantise(g, h, scales, constant, fine, packed):
    """Write the FINE numbers of g and h, and their packed COARSE numbers.

    A constant h is 1 in both, so that its sums are numbers of rows.
    """
    half, ones = np.int64(1 << (SHIFT - 1)), np.float64(WHOLE).view(np.int64)
    g_scale, h_scale = scales
    for i in range(len(g)):
        # of whole numbers, without a conversion: see losses.exp
        gi = np.float64(np.floor(g[i] * g_scale + 0.5) + WHOLE).view(np.int64) - ones
        fine[2 * i] = gi
        if constant:
            fine[2 * i + 1] = 1
            packed[i] = (((gi + half) >> SHIFT) << 32) + 1
        else:
            hi = np.float64(np.floor(h[i] * h_scale + 0.5) + WHOLE).view(np.int64)
            hi -= ones
            fine[2 * i + 1] = hi
            packed[i] = (((gi + half) >> SHIFT) << 32) + ((hi + half) >> SHIFT)
