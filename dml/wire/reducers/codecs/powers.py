"""Natural compression (Horváth 2019): rounding to a power of two, at random.

    value     0.40 = 1.6 · 2^-2     sign and exponent: 9 bits per element
    sent      0.25 with probability 0.4, 0.5 with probability 0.6

Adding 23 random bits to the significand and dropping it carries into the exponent with
exactly the probability that makes the code unbiased. E|decoded - x|² ≤ 1/8 |x|².
"""

import numpy as np
from numba import njit

from dml.wire.reducers.codecs import Codec
from dml.wire.reducers.codecs.hashing import hashed


def natural() -> Codec:
    """Return natural compression: n bytes of exponents and ⌈n/8⌉ of signs."""

    def encode(values: np.ndarray, code: np.ndarray, seed: int) -> None:
        write_exponents(values.view(np.int32), code[: len(values)], seed)
        code[len(values) :] = np.packbits(values < 0, bitorder="little")

    def add(code: np.ndarray, total: np.ndarray) -> None:
        add_powers(code[: len(total)], code[len(total) :], total)

    return Codec(lambda length: length + -(-length // 8), encode, add, unbiased=True)


@njit(nogil=True, cache=True)
def write_exponents(bits_N, exponents_N, seed):
    """Write the exponents of the values, rounded up or down at random."""
    for n in range(len(bits_N)):
        absolute = np.uint32(bits_N[n]) & np.uint32(0x7FFFFFFF)
        random = hashed(seed, n) >> np.uint32(9)
        if absolute >= np.uint32(0x7F800000):  # NaN and infinity stay what they are
            random = np.uint32(0)
        exponents_N[n] = np.uint8(np.uint32(absolute + random) >> np.uint32(23))


@njit(nogil=True, cache=True)
def add_powers(exponents_N, signs, total):
    """Add the powers of two to `total`; exponent 0 stands for zero."""
    for n in range(len(exponents_N)):
        sign = np.uint32((signs[n >> 3] >> np.uint8(n & 7)) & np.uint8(1))
        bits = np.uint32(sign << np.uint32(31)) | np.uint32(
            np.uint32(exponents_N[n]) << np.uint32(23)
        )
        total[n] += np.uint32(bits).view(np.float32)
