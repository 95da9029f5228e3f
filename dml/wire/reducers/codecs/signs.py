"""Codes of one bit per element: the sign, with one or two magnitudes per vector.

    values      0.4  -0.1   0.0  -0.5
    bits         0     1     0     1       1: negative; zero counts as positive
    sign        +s    -s    +s    -s       s: mean of the absolute values
    one_bit     +a    -b    +a    -b       a, b: means of the positive, negative values

Both are biased: they need error feedback. Bytes: ⌈n/8⌉ and the magnitudes.
"""

import numpy as np
from numba import njit

from dml.wire.reducers.codecs import Codec
from dml.wire.reducers.codecs.packing import BLOCK, pack
from dml.wire.reducers.codecs.sums import LANES, sum_by_halves


def sign() -> Codec:
    """Return the scaled sign (Karimireddy 2019): sign(x) · mean |x|."""

    def encode(values: np.ndarray, code: np.ndarray, seed: int) -> None:
        above, below, _ = pack_signs(values, code[4:])
        code[:4].view(np.float32)[0] = (above - below) / len(values)

    def add(code: np.ndarray, total: np.ndarray) -> None:
        scale = code[:4].view(np.float32)[0]
        add_signs(code[4:], scale, -scale, total)

    return Codec(lambda length: 4 * (length > 0) + -(-length // 8), encode, add)


def one_bit() -> Codec:
    """Return 1-bit quantisation (Seide 2014): the mean of the values of each sign."""

    def encode(values: np.ndarray, code: np.ndarray, seed: int) -> None:
        above, below, count = pack_signs(values, code[8:])
        magnitudes = code[:8].view(np.float32)
        magnitudes[0] = above / max(1, len(values) - count)
        magnitudes[1] = below / max(1, count)

    def add(code: np.ndarray, total: np.ndarray) -> None:
        above, below = code[:8].view(np.float32)
        add_signs(code[8:], above, below, total)

    return Codec(lambda length: 8 * (length > 0) + -(-length // 8), encode, add)


@njit(nogil=True, cache=True)
def pack_signs(values, bits):
    """Write a bit per element, 1 if it is negative.

    Return the sum of the elements that are not negative, and the sum and the number of
    those that are.
    """
    words = np.empty(BLOCK // 8, np.uint64)
    negative = words.view(np.uint8)
    above, below, count = np.zeros(LANES), np.zeros(LANES), 0
    for first in range(0, len(values), BLOCK):
        part = values[first : first + BLOCK]
        write_signs(part, words)
        for n in range(len(part)):
            count += int(negative[n])
        pack(words, 1, bits[first // 8 : -(-(first + len(part)) // 8)])
        add_by_sign(part, above, below)
    return sum_by_halves(above), sum_by_halves(below), count


@njit(nogil=True, cache=True)
def add_by_sign(part, above, below):
    """Add elements to LANES sums, by whether they are negative."""
    full = len(part) // LANES * LANES
    for first in range(0, full, LANES):
        for n in range(LANES):
            value = np.float64(part[first + n])
            above[n] += 0.0 if value < 0 else value
            below[n] += value if value < 0 else 0.0
    for n in range(full, len(part)):
        value = np.float64(part[n])
        above[n - full] += 0.0 if value < 0 else value
        below[n - full] += value if value < 0 else 0.0


@njit(nogil=True, cache=True)
def write_signs(part, words):
    """Write a byte per element to `words`, 1 if it is negative; 0 after the last."""
    negative = words.view(np.uint8)
    negative[len(part) :] = 0
    for n in range(len(part)):
        negative[n] = part[n] < 0


@njit(nogil=True, cache=True)
def add_signs(bits, zero, one, total):
    """Add `one` to the elements whose bit is set, and `zero` to the others."""
    full = len(total) // 8
    for byte in range(full):
        part = bits[byte]
        for bit in range(8):
            total[8 * byte + bit] += one if (part >> bit) & 1 else zero
    for n in range(8 * full, len(total)):
        total[n] += one if (bits[n >> 3] >> (n & 7)) & 1 else zero
