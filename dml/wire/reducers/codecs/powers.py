"""Natural compression (Horváth 2019): rounding to a power of two, at random.

    value     0.40 = 1.6 · 2^-2     sign and exponent: 9 bits per element
    sent      0.25 with probability 0.4, 0.5 with probability 0.6

Adding 23 random bits to the significand and dropping it carries into the exponent with
exactly the probability that makes the code unbiased. E|decoded - x|² ≤ 1/8 |x|².
There is no float32 above 2^127 to round up to: such values are rounded down.
"""

import numpy as np
from numba import njit

from dml.wire.reducers.codecs import Codec
from dml.wire.reducers.codecs.hashing import write_random
from dml.wire.reducers.codecs.packing import BLOCK, pack, unpack
from dml.wire.reducers.codecs.signs import write_signs


def natural() -> Codec:
    """Return natural compression: n bytes of exponents and ⌈n/8⌉ of signs."""

    def encode(values: np.ndarray, code: np.ndarray, seed: int) -> None:
        length = len(values)
        write_exponents(values.view(np.int32), code[:length], code[length:], seed)

    def add(code: np.ndarray, total: np.ndarray) -> None:
        add_powers(code[: len(total)], code[len(total) :], total)

    return Codec(lambda length: length + -(-length // 8), encode, add, unbiased=True)


@njit(nogil=True, cache=True)
def write_exponents(bits_N, exponents_N, signs, seed):
    """Write the signs, and the exponents, rounded up or down at random."""
    words = np.empty(BLOCK // 8, np.uint64)
    draws = np.empty(BLOCK, np.uint32)
    for first in range(0, len(bits_N), BLOCK):
        part = bits_N[first : first + BLOCK]
        write_random(seed, first, draws)
        exponents = exponents_N[first : first + BLOCK]
        for n in range(len(part)):
            absolute = np.uint32(part[n]) & np.uint32(0x7FFFFFFF)
            random = draws[n] >> np.uint32(9)
            if absolute >= np.uint32(0x7F000000):  # 2^127 and above, infinity, NaN
                random = np.uint32(0)
            exponents[n] = np.uint8(np.uint32(absolute + random) >> np.uint32(23))
        write_signs(part.view(np.float32), words)
        pack(words, 1, signs[first // 8 : -(-(first + len(part)) // 8)])


@njit(nogil=True, cache=True)
def add_powers(exponents_N, signs, total):
    """Add the powers of two to `total`; exponent 0 stands for zero."""
    words = np.empty(BLOCK // 8, np.uint64)
    negative = words.view(np.uint8)
    for first in range(0, len(total), BLOCK):
        part, exponents = total[first : first + BLOCK], exponents_N[first:]
        unpack(signs[first // 8 : -(-(first + len(part)) // 8)], 1, words)
        for n in range(len(part)):
            bits = np.uint32(exponents[n]) << np.uint32(23)
            bits |= np.uint32(negative[n]) << np.uint32(31)
            part[n] += np.uint32(bits).view(np.float32)
