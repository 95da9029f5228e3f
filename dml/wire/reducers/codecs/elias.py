"""Elias-coded levels of QSGD (Alistarh 2017): fewer bits the more levels are zero.

    levels    0  +2  0  0  -1     norm 0.7
    code      norm │ gap 2, +, 2 │ gap 3, -, 1

A gap is the distance from the last nonzero level, and a level is a positive integer.
Both are in Elias' recursive (omega) code, in which an integer k has about
log k + log log k + ... + 1 bits:

    1: 0     2: 10 0     3: 11 0     4: 10 100 0     16: 10 100 10000 0

The paper's theorem 3.2 bounds the expected number of bits; see `bound`. The length
depends on the values, so a code is not a `Codec`: a receiver must learn it first.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

NORM_BITS = 32
LONGEST = 128  # bits: enough for a gap and a level of 31 bits, and a sign


class Levels(NamedTuple):
    """A vector of levels of a norm.

    Attributes:
      norm: Value of the highest level.
      levels_N: Integers, of which most are zero.
    """

    norm: np.float32
    levels_N: np.ndarray


class Bits(NamedTuple):
    """A sequence of bits, the highest bit of a byte first.

    Attributes:
      code: The bytes.
      length: Number of bits.
    """

    code: np.ndarray
    length: int


def encode(values: Levels) -> Bits:
    """Return the Elias code of a vector."""
    levels_N = np.ascontiguousarray(values.levels_N, np.int32)
    nonzero = int(np.count_nonzero(levels_N))
    code = np.zeros(NORM_BITS // 8 + -(-nonzero * LONGEST // 8), np.uint8)
    code[: NORM_BITS // 8] = np.array([values.norm], np.float32).view(np.uint8)
    count = write_levels(levels_N, code, NORM_BITS)
    return Bits(code[: -(-count // 8)].copy(), count)


def decode(bits: Bits, length: int) -> Levels:
    """Return the vector of `length` elements of a code."""
    norm = bits.code[: NORM_BITS // 8].view(np.float32)[0]
    levels_N = np.zeros(length, np.int32)
    read_levels(bits.code, NORM_BITS, bits.length, levels_N)
    return Levels(norm, levels_N)


def bound(length: int, levels: int) -> float:
    """Return the bits of theorem 3.2 without its o(1): an expectation over roundings.

    (3 + 3/2 log 2(s² + n)/(s(s + √n))) s(s + √n) + 32 for n elements and s levels.
    """
    nonzero = levels * (levels + math.sqrt(length))
    logarithm = math.log2(2 * (levels**2 + length) / nonzero)
    return (3 + 1.5 * logarithm) * nonzero + NORM_BITS


@njit(nogil=True, cache=True)
def write_levels(levels_N, code, count):
    """Write gaps, signs and levels from bit `count` on; return the number of bits."""
    last = -1
    for n in range(len(levels_N)):
        if levels_N[n] != 0:
            count = write_integer(code, count, n - last)
            count = write_bits(code, count, 1 if levels_N[n] < 0 else 0, 1)
            count = write_integer(code, count, abs(levels_N[n]))
            last = n
    return count


@njit(nogil=True, cache=True)
def read_levels(code, start, stop, levels_N):
    """Read gaps, signs and levels of the bits from `start` to `stop`."""
    last = -1
    while start < stop:
        gap, start = read_integer(code, start)
        negative, start = read_bits(code, start, 1)
        level, start = read_integer(code, start)
        last += gap
        levels_N[last] = -level if negative else level


@njit(nogil=True, cache=True)
def write_integer(code, count, integer):
    """Write the Elias code of an integer of at least 1; return the number of bits."""
    groups = np.empty(8, np.int64)  # the last one is the integer
    used = 0
    while integer > 1:
        groups[used] = integer
        used += 1
        integer = bit_length(integer) - 1
    for n in range(used - 1, -1, -1):
        count = write_bits(code, count, groups[n], bit_length(groups[n]))
    return write_bits(code, count, 0, 1)


@njit(nogil=True, cache=True)
def read_integer(code, start):
    """Return the integer of an Elias code, and the position of the bit after it."""
    integer = 1
    while code[start >> 3] >> (7 - (start & 7)) & 1:
        integer, start = read_bits(code, start, integer + 1)
    return integer, start + 1


@njit(nogil=True, cache=True)
def write_bits(code, count, integer, length):
    """Write an integer of `length` bits at bit `count`, the highest first."""
    for n in range(length - 1, -1, -1):
        if integer >> n & 1:
            code[count >> 3] |= np.uint8(128 >> (count & 7))
        count += 1
    return count


@njit(nogil=True, cache=True)
def read_bits(code, start, length):
    """Return an integer of `length` bits, and the position of the bit after it."""
    integer = 0
    for _ in range(length):
        integer = 2 * integer + (code[start >> 3] >> (7 - (start & 7)) & 1)
        start += 1
    return integer, start


@njit(nogil=True, cache=True)
def bit_length(integer):
    """Return the number of bits of a positive integer."""
    length = 0
    while integer:
        integer >>= 1
        length += 1
    return length
