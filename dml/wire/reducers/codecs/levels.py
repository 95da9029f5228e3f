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
from dml.wire.reducers.codecs.hashing import uniform

BLOCK = 512  # elements with a common scale
MAX_LEVELS = 127
CLIP = 2.5  # multiple of the root mean square at which TernGrad clips
NORM, LARGEST = 0, 1  # scales: Euclidean norm, largest absolute value


def qsgd(levels: int) -> Codec:
    """Return QSGD (Alistarh 2017): levels of the Euclidean norm of a block.

    E|decoded - x|² ≤ min(b/s², √b/s) |x|² for blocks of b elements and s levels.
    """
    if not 1 <= levels <= MAX_LEVELS:
        raise BadInput(
            f"expected 1 to {MAX_LEVELS} levels of QSGD, got {levels}; correct it"
        )
    return leveled(levels, NORM, random=True)


def terngrad() -> Codec:
    """Return TernGrad (Wen 2017): -1, 0 or 1 times the largest absolute value.

    Values beyond 2.5 times the root mean square are clipped first: the code is an
    unbiased estimate of the clipped values. The vector is one block.
    """

    def encode(values: np.ndarray, code: np.ndarray, seed: int) -> None:
        mean_square = np.square(values, dtype=np.float64).mean()
        bound = np.float32(CLIP * np.sqrt(mean_square))
        whole.encode(np.clip(values, -bound, bound), code, seed)

    whole = leveled(1, LARGEST, random=True, block=1 << 62)
    return whole._replace(encode=encode)


def int8() -> Codec:
    """Return integers from -127 to 127, rounded to nearest, by blocks."""
    return leveled(MAX_LEVELS, LARGEST, random=False)


def leveled(levels: int, scale: int, random: bool, block: int = BLOCK) -> Codec:
    """Return the code of levels from -levels to levels.

    Args:
      levels: Number of positive levels.
      scale: NORM or LARGEST, the value of the highest level.
      random: Whether to round up with the probability of the fraction, or to nearest.
      block: Number of elements with a common scale.
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
    window, filled, used = np.uint64(0), np.uint64(0), 0
    for b in range(len(scales)):
        part = values[b * width : (b + 1) * width]
        total, largest = 0.0, np.float32(0)
        for n in range(len(part)):
            total += np.float64(part[n]) * np.float64(part[n])
            absolute = abs(part[n])
            largest = absolute if absolute > largest else largest
        highest = np.float32(np.sqrt(total)) if scale == NORM else largest
        if not total < np.inf:  # NaN or infinity
            highest = np.float32(np.nan)
        scales[b] = highest
        factor = np.float32(levels) / highest if highest > 0 else np.float32(0)
        for n in range(len(part)):
            level = part[n] * factor if factor < np.inf else np.float32(0)
            draw = uniform(seed, b * width + n) if random else np.float32(0.5)
            integer = np.int64(np.floor(level + draw)) if highest == highest else 0
            integer = min(max(integer, -levels), levels)
            window |= np.uint64(integer + levels) << filled
            filled += np.uint64(bits)
            while filled >= np.uint64(8):
                packed[used] = np.uint8(window & np.uint64(255))
                window >>= np.uint64(8)
                filled -= np.uint64(8)
                used += 1
    if filled:
        packed[used] = np.uint8(window & np.uint64(255))


@njit(nogil=True, cache=True)
def add_levels(scales, packed, shape, total):
    """Add the values of levels to `total`."""
    levels, bits, width = shape
    mask = np.uint64((1 << bits) - 1)
    window, filled, used = np.uint64(0), np.uint64(0), 0
    for b in range(len(scales)):
        part = total[b * width : (b + 1) * width]
        step = scales[b] / np.float32(levels)
        for n in range(len(part)):
            while filled < np.uint64(bits):
                window |= np.uint64(packed[used]) << filled
                filled += np.uint64(8)
                used += 1
            part[n] += step * np.float32(np.int64(window & mask) - levels)
            window >>= np.uint64(bits)
            filled -= np.uint64(bits)
