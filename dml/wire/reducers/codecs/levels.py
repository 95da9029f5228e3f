"""Codes of a scale per block and a small integer per element, packed into bits.

    values of a block    0.9  -0.2   0.0   0.5     scale 1.05 (norm of the block)
    QSGD, 4 levels       3.4  -0.8   0.0   1.9     |x| / norm · levels
    sent                 +4   -1     0     +2      rounded up or down at random

Rounding up with the probability of the fraction makes the codes unbiased. A code has
one float32 per block, and ⌈lg(2s + 1)⌉ bits per element for levels from -s to s.
"""

import numpy as np
from numba import njit

from dml.types import BadInput
from dml.wire.reducers.codecs import Codec
from dml.wire.reducers.codecs.hashing import write_random
from dml.wire.reducers.codecs.packing import BLOCK, pack, unpack
from dml.wire.reducers.codecs.sums import sum_of_squares

MAX_LEVELS = 127
WHOLE = 1 << 62  # length of a block that has all elements
CLIP = 2.5  # multiple of the root mean square at which TernGrad clips
# scales: Euclidean norm; largest absolute value; the same, at most the clipping bound
NORM, LARGEST, CLIPPED = 0, 1, 2


def qsgd(levels: int, block: int = BLOCK) -> Codec:
    """Return QSGD (Alistarh 2017): levels of the Euclidean norm of a block.

    E|decoded - x|² ≤ min(b/s², √b/s) |x|² for blocks of b elements and s levels.

    Args:
      levels: Number s of levels.
      block: Number b of elements with a common norm, a multiple of 8.
    """
    if not 1 <= levels <= MAX_LEVELS:
        raise BadInput(
            f"expected 1 to {MAX_LEVELS} levels of QSGD, got {levels}; correct it"
        )
    return leveled(levels, NORM, random=True, block=block)


def terngrad() -> Codec:
    """Return TernGrad (Wen 2017): -1, 0 or 1 times the largest absolute value.

    Values beyond 2.5 times the root mean square are clipped first: the code is an
    unbiased estimate of the clipped values. The vector is one block.
    """
    return leveled(1, CLIPPED, random=True, block=WHOLE)


def int8() -> Codec:
    """Return integers from -127 to 127, rounded to nearest, by blocks."""
    return leveled(MAX_LEVELS, LARGEST, random=False)


def leveled(levels: int, scale: int, random: bool, block: int = BLOCK) -> Codec:
    """Return the code of levels from -levels to levels.

    Args:
      levels: Number of positive levels.
      scale: NORM, LARGEST or CLIPPED, the value of the highest level.
      random: Whether to round up with the probability of the fraction, or to nearest.
      block: Number of elements with a common scale, a multiple of 8.
    """
    bits = (2 * levels).bit_length()

    def blocks(length: int) -> int:
        return -(-length // block)

    def nbytes(length: int) -> int:
        return 4 * blocks(length) + -(-length * bits // 8)

    def encode(values: np.ndarray, code: np.ndarray, seed: int) -> None:
        split = 4 * blocks(len(values))
        scales = np.empty(blocks(len(values)), np.float32)
        width = min(block, max(1, len(values)))
        write_levels(
            values, scales, code[split:], (levels, bits, width), scale, random, seed
        )
        code[:split].view(np.float32)[:] = scales

    def add(code: np.ndarray, total: np.ndarray) -> None:
        split = 4 * blocks(len(total))
        scales = code[:split].view(np.float32).copy()  # aligned
        width = min(block, max(1, len(total)))
        add_levels(scales, code[split:], (levels, bits, width), total)

    return Codec(nbytes, encode, add, unbiased=random)


@njit(nogil=True, cache=True)
def write_levels(values, scales, packed, shape, scale, random, seed):
    """Write the scales of blocks, and the levels of their elements, packed."""
    levels, bits, width = shape
    words = np.empty(BLOCK // 8, np.uint64)
    draws = np.full(BLOCK, 1 << 31, np.uint32)  # a half: rounding to nearest
    for b in range(len(scales)):
        stop = min((b + 1) * width, len(values))
        scales[b] = highest_of(values[b * width : stop], scale)
        for first in range(b * width, stop, BLOCK):
            part = values[first : min(first + BLOCK, stop)]
            if random:
                write_random(seed, first, draws)
            round_levels(part, scales[b], levels, draws, words)
            code = packed[first * bits // 8 :]
            pack(words, bits, code[: -(-len(part) * bits // 8)])


@njit(nogil=True, cache=True)
def add_levels(scales, packed, shape, total):
    """Add the values of levels to `total`."""
    levels, bits, width = shape
    words = np.empty(BLOCK // 8, np.uint64)
    for b in range(len(scales)):
        step = scales[b] / np.float32(levels)
        stop = min((b + 1) * width, len(total))
        for first in range(b * width, stop, BLOCK):
            part = total[first : min(first + BLOCK, stop)]
            code = packed[first * bits // 8 :]
            unpack(code[: -(-len(part) * bits // 8)], bits, words)
            shifted = words.view(np.uint8)
            for n in range(len(part)):
                level = np.int32(np.int32(shifted[n]) - np.int32(levels))
                part[n] += step * np.float32(level)


@njit(nogil=True, cache=True)
def highest_of(block, scale):
    """Return the value of the highest level; NaN if an element is not finite."""
    largest, bits_N = np.int32(0), block.view(np.int32)
    for n in range(len(bits_N)):  # bits of absolute values have their order
        largest = max(largest, np.int32(bits_N[n] & np.int32(0x7FFFFFFF)))
    if largest >= np.int32(0x7F800000):
        return np.float32(np.nan)
    if scale == NORM:
        return np.float32(np.sqrt(sum_of_squares(block)))
    highest = np.int32(largest).view(np.float32)
    if scale == CLIPPED:
        mean_square = sum_of_squares(block) / len(block)
        highest = min(highest, np.float32(CLIP * np.sqrt(mean_square)))
    return highest


@njit(nogil=True, cache=True)
def round_levels(part, highest, levels, draws, words):
    """Write the level plus `levels` of each element to a byte of `words`.

    Args:
      part: At most BLOCK values.
      highest: Value of the highest level; NaN: all levels are 0.
      levels: Number of positive levels.
      draws: Random numbers of 32 bits; the larger, the more elements are rounded up.
      words: Receives the bytes; bytes after the last element are 0.
    """
    shifted = words.view(np.uint8)
    shifted[len(part) :] = 0
    if highest != highest:
        shifted[: len(part)] = levels
        return
    factor = np.float32(levels) / highest if highest > 0 else np.float32(0)
    if factor == np.inf:
        factor = np.float32(0)
    for n in range(len(part)):
        value = min(max(part[n], -highest), highest)
        draw = np.float32(np.int32(draws[n] >> np.uint32(8))) * np.float32(2.0**-24)
        level = np.int32(np.floor(value * factor + draw))
        shifted[n] = min(max(level, np.int32(-levels)), np.int32(levels)) + levels
