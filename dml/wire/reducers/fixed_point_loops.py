"""Compiled loops of order-free sums: float32 terms to integers, and sums back.

Values are passed as their bits, in arrays of int32: a loop that reads one array and
writes another of the same memory is not vectorised. A block has BLOCK values and an
exponent, that of its largest absolute value.
"""

from collections.abc import Sequence

import numpy as np
from numba import njit

from dml.wire.plans.fixed_point import BLOCK, LOWEST

NOT_FINITE = 255  # exponent of NaN and infinity


def block_exponents(terms: Sequence[np.ndarray]) -> np.ndarray:
    """Return the exponent of the largest absolute value of each block of the terms."""
    exponents = np.zeros(-(-terms[0].size // BLOCK), np.uint8)
    for term in terms:
        raise_exponents(term.view(np.int32), exponents)
    return exponents


@njit(nogil=True, cache=True)
def raise_exponents(bits_N, exponents):
    """Raise the exponents of blocks to those of their largest values, given as bits."""
    for b in range(len(exponents)):
        largest = larger_bits(bits_N[b * BLOCK : (b + 1) * BLOCK], np.int32(0))
        exponents[b] = max(np.int64(exponents[b]), np.int64(largest >> 23))


@njit(nogil=True, cache=True)
def scale_power(exponent, shift):
    """Return the power of two that scales a block's values to at most 2^shift."""
    return shift + 126 - (LOWEST if exponent < LOWEST else np.int64(exponent))


@njit(nogil=True, cache=True)
def sum_blocks(buffers, shift):
    """Replace the bits of float32 values in each of several buffers by their sum."""
    total = np.empty(BLOCK, np.int32)
    for start in range(0, len(buffers[0]), BLOCK):
        block = slice(start, start + BLOCK)
        largest = np.int32(0)
        for k in range(len(buffers)):
            largest = larger_bits(buffers[k][block], largest)
        exponent = largest >> 23
        scale, inverse = scales(exponent, shift)
        total[:] = 0
        for k in range(len(buffers)):
            add_integers(total, buffers[k][block], scale)
        for k in range(len(buffers)):
            write_floats(buffers[k][block], total, inverse)


# Functions of two arrays, so that their loops are vectorised in `sum_blocks`.


@njit(nogil=True, cache=True)
def larger_bits(bits_N, largest):
    """Return the bits of the largest absolute value, or `largest` if it is larger."""
    for i in range(len(bits_N)):
        absolute = np.int32(bits_N[i] & np.int32(0x7FFFFFFF))
        largest = absolute if absolute > largest else largest
    return largest


@njit(nogil=True, cache=True)
def add_integers(total_N, bits_N, scale):
    """Add the bits of float32 values, as integers, to a sum."""
    for i in range(len(bits_N)):
        integer = np.int32(np.rint(np.int32(bits_N[i]).view(np.float32) * scale))
        total_N[i] = np.int32(total_N[i] + integer)


@njit(nogil=True, cache=True)
def write_floats(bits_N, total_N, inverse):
    """Write a sum of integers as the bits of float32 values."""
    for i in range(len(bits_N)):
        bits_N[i] = np.float32(np.float32(total_N[i]) * inverse).view(np.int32)


@njit(nogil=True, cache=True)
def to_integers(bits_N, exponents, shift):
    """Replace the bits of float32 values by integers."""
    for b in range(len(exponents)):
        part = bits_N[b * BLOCK : (b + 1) * BLOCK]
        if exponents[b] == NOT_FINITE:
            part[:] = 0
            continue
        scale, _ = scales(exponents[b], shift)
        for i in range(len(part)):
            value = np.int32(part[i]).view(np.float32)
            part[i] = np.int32(np.rint(value * scale))


@njit(nogil=True, cache=True)
def add_received(bits_N, received_N, first, exponents, shift, is_first, is_last):
    """Add received values to a part of a term; see `FixedPoint.reduce_by_ring`.

    Args:
      bits_N: Bits of the float32 values of the part, replaced by the sum: integers or,
        if it `is_last`, the bits of float32 values.
      received_N: Integers or, if the addition `is_first`, the bits of float32 values.
      first: Number of the part's first value in the term.
      exponents: Those of the blocks of the term.
      shift: Exponent of the largest integer.
      is_first: Whether the part has not been added to before.
      is_last: Whether no addition follows.
    """
    at = 0
    while at < len(bits_N):
        block = (first + at) // BLOCK
        end = min(len(bits_N), (block + 1) * BLOCK - first)
        part, received = bits_N[at:end], received_N[at:end]
        scale, inverse = scales(exponents[block], shift)
        if exponents[block] != NOT_FINITE:  # else the sum becomes NaN
            if is_first:
                add_two_terms(part, received, scale)
            else:
                add_term_to_sum(part, received, scale)
        if is_last:
            write_sum(part, inverse)
        at = end


@njit(nogil=True, cache=True)
def scales(exponent, shift):
    """Return the scale of a block's values to integers, and that of sums to values."""
    power = scale_power(exponent, shift)
    inverse = np.int32((127 - power) << 23).view(np.float32)
    if exponent == NOT_FINITE:
        inverse = np.float32(np.nan)
    return np.int32((127 + power) << 23).view(np.float32), inverse


@njit(nogil=True, cache=True)
def add_whole_blocks(bits_N, received_N, shift):
    """Replace the bits of the blocks of a term by those of their sum with another."""
    for start in range(0, len(bits_N), BLOCK):
        part = bits_N[start : start + BLOCK]
        received = received_N[start : start + BLOCK]
        exponent = larger_bits(received, larger_bits(part, np.int32(0))) >> 23
        scale, inverse = scales(exponent, shift)
        if exponent == NOT_FINITE:
            write_sum(part, inverse)
        else:
            sum_two_terms(part, received, scale, inverse)


@njit(nogil=True, cache=True)
def sum_two_terms(bits_N, received_N, scale, inverse):
    """Replace the bits of a term by those of its exact sum with another term."""
    for i in range(len(bits_N)):
        own = np.rint(np.int32(bits_N[i]).view(np.float32) * scale)
        other = np.rint(np.int32(received_N[i]).view(np.float32) * scale)
        total = np.int32(np.int32(own) + np.int32(other))
        bits_N[i] = np.float32(np.float32(total) * inverse).view(np.int32)


@njit(nogil=True, cache=True)
def add_two_terms(bits_N, received_N, scale):
    """Replace the bits of a term by the sum of its integers and another term's."""
    for i in range(len(bits_N)):
        own = np.rint(np.int32(bits_N[i]).view(np.float32) * scale)
        other = np.rint(np.int32(received_N[i]).view(np.float32) * scale)
        bits_N[i] = np.int32(np.int32(own) + np.int32(other))


@njit(nogil=True, cache=True)
def add_term_to_sum(bits_N, received_N, scale):
    """Replace the bits of a term by the sum of its integers and those received."""
    for i in range(len(bits_N)):
        own = np.rint(np.int32(bits_N[i]).view(np.float32) * scale)
        bits_N[i] = np.int32(np.int32(own) + received_N[i])


@njit(nogil=True, cache=True)
def from_integers(bits_N, exponents, shift):
    """Replace integers by the bits of float32 values."""
    for b in range(len(exponents)):
        _, inverse = scales(exponents[b], shift)
        write_sum(bits_N[b * BLOCK : (b + 1) * BLOCK], inverse)


@njit(nogil=True, cache=True)
def write_sum(bits_N, inverse):
    """Replace the integers of a block by the bits of float32 values."""
    for i in range(len(bits_N)):
        bits_N[i] = np.float32(np.float32(bits_N[i]) * inverse).view(np.int32)


@njit(nogil=True, cache=True)
def add_wide_integers(total_N, values_N, exponents, shift):
    """Add float32 values, as 64-bit integers, to a sum."""
    for b in range(len(exponents)):
        part = slice(b * BLOCK, (b + 1) * BLOCK)
        total, values = total_N[part], values_N[part]
        scale = 2.0 ** scale_power(exponents[b], shift)
        if exponents[b] != NOT_FINITE:
            for i in range(len(values)):
                total[i] += np.int64(np.rint(values[i] * scale))


@njit(nogil=True, cache=True)
def from_wide_integers(total_N, exponents, shift, values_N):
    """Convert sums of 64-bit integers to float32 values."""
    for b in range(len(exponents)):
        part = slice(b * BLOCK, (b + 1) * BLOCK)
        total, values = total_N[part], values_N[part]
        scale = 0.5 ** scale_power(exponents[b], shift)
        if exponents[b] == NOT_FINITE:
            scale = np.nan
        for i in range(len(values)):
            values[i] = np.float32(total[i] * scale)
