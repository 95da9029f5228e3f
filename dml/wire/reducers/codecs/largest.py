"""Code of the elements with the largest absolute values.

    values    0.4  -0.1   0.0  -0.5     k = 2
    code      0, 3 │ 0.4, -0.5          positions, ascending; then the values

Biased: it needs error feedback. Of equal absolute values the first ones are sent, so a
code depends on the values alone. Bytes: 8k.

The k-th largest value is found without sorting: a histogram of the upper 16 bits of the
absolute values determines one bin, and only this bin is partitioned.
"""

import math

import numpy as np
from numba import njit

from dml.wire.reducers.codecs import BadCode, Codec, check_fraction

BINS = 1 << 16


def top_k(fraction: float) -> Codec:
    """Return the code of the largest ⌈fraction · n⌉ of n elements."""
    check_fraction(fraction)

    def count(length: int) -> int:
        return math.ceil(fraction * length)

    def encode(values: np.ndarray, code: np.ndarray, seed: int) -> None:
        k = count(len(values))
        if not k:
            return
        positions = code[: 4 * k].view(np.int32)
        select_largest(values.view(np.int32), positions)
        np.take(values, positions, out=code[4 * k :].view(np.float32))

    def add(code: np.ndarray, total: np.ndarray) -> None:
        k = count(len(total))
        positions, values = code[: 4 * k].view(np.int32), code[4 * k :].view(np.float32)
        bad = add_at(positions, values, total)
        if bad >= 0:
            raise BadCode(
                f"distinct ascending positions below {len(total)}, got "
                f"{positions[bad]} as number {bad}"
            )

    return Codec(lambda length: 8 * count(length), encode, add, sparse=True)


def select_largest(bits_N: np.ndarray, positions_K: np.ndarray) -> None:
    """Write the ascending positions of the K largest absolute values.

    Args:
      bits_N: Bits of float32 values, whose order is that of the absolute values.
      positions_K: Receives the positions.
    """
    counts = histogram(bits_N)
    above = np.cumsum(counts[::-1])[::-1]  # number of values in a bin and above it
    bin_of_kth = int(np.searchsorted(-above, -len(positions_K), "right")) - 1
    inside = values_of_bin(bits_N, bin_of_kth, int(counts[bin_of_kth]))
    wanted = len(positions_K) - int(above[bin_of_kth] - counts[bin_of_kth])
    inside.partition(len(inside) - wanted)
    smallest = inside[len(inside) - wanted]
    ties = wanted - int((inside > smallest).sum())
    write_positions(bits_N, smallest, ties, positions_K)


@njit(nogil=True, cache=True)
def histogram(bits_N):
    """Return the number of values in each bin of the upper bits of absolute values."""
    counts = np.zeros(BINS, np.int64)
    for n in range(len(bits_N)):
        counts[(bits_N[n] & np.int32(0x7FFFFFFF)) >> 15] += 1
    return counts


@njit(nogil=True, cache=True)
def values_of_bin(bits_N, number, count):
    """Return the bits of the absolute values in a bin."""
    inside, used = np.empty(count, np.int32), 0
    for n in range(len(bits_N)):
        absolute = np.int32(bits_N[n] & np.int32(0x7FFFFFFF))
        if absolute >> 15 == number:
            inside[used] = absolute
            used += 1
    return inside


@njit(nogil=True, cache=True)
def write_positions(bits_N, smallest, ties, positions_K):
    """Write the positions of values above `smallest`, and of the first ties with it."""
    used = 0
    for n in range(len(bits_N)):
        absolute = np.int32(bits_N[n] & np.int32(0x7FFFFFFF))
        if absolute > smallest or (absolute == smallest and ties > 0):
            ties -= absolute == smallest
            positions_K[used] = n
            used += 1


@njit(nogil=True, cache=True)
def add_at(positions_K, values_K, total_N):
    """Add values at ascending positions; return the number of a bad one, or -1."""
    previous = -1
    for k in range(len(positions_K)):
        position = positions_K[k]
        if not previous < position < len(total_N):
            return k
        total_N[position] += values_K[k]
        previous = position
    return -1
