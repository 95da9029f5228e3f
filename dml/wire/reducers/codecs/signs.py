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


def sign() -> Codec:
    """Return the scaled sign (Karimireddy 2019): sign(x) · mean |x|."""

    def encode(values: np.ndarray, code: np.ndarray, seed: int) -> None:
        code[:4].view(np.float32)[0] = np.abs(values).mean(dtype=np.float64)
        code[4:] = np.packbits(values < 0, bitorder="little")

    def add(code: np.ndarray, total: np.ndarray) -> None:
        scale = code[:4].view(np.float32)[0]
        add_signs(code[4:], scale, -scale, total)

    return Codec(lambda length: 4 * (length > 0) + -(-length // 8), encode, add)


def one_bit() -> Codec:
    """Return 1-bit quantisation (Seide 2014): the mean of the values of each sign."""

    def encode(values: np.ndarray, code: np.ndarray, seed: int) -> None:
        negative = values < 0
        count = int(np.count_nonzero(negative))
        total = float(values.sum(dtype=np.float64))
        size = float(np.abs(values).sum(dtype=np.float64))
        above, below = (total + size) / 2, (total - size) / 2
        magnitudes = code[:8].view(np.float32)
        magnitudes[0] = above / max(1, len(values) - count)
        magnitudes[1] = below / max(1, count)
        code[8:] = np.packbits(negative, bitorder="little")

    def add(code: np.ndarray, total: np.ndarray) -> None:
        above, below = code[:8].view(np.float32)
        add_signs(code[8:], above, below, total)

    return Codec(lambda length: 8 * (length > 0) + -(-length // 8), encode, add)


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
