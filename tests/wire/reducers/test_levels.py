"""Codes of levels against a slow reference: an integer per element in a bit stream."""

import math

import numpy as np
import pytest

from dml.wire.reducers.codecs import decode
from dml.wire.reducers.codecs.hashing import GOLDEN, write_random
from dml.wire.reducers.codecs.levels import CLIPPED, LARGEST, NORM, WHOLE, leveled
from dml.wire.reducers.codecs.packing import BLOCK, pack, unpack
from dml.wire.reducers.codecs.sums import LANES, sum_of_squares

LENGTHS = (0, 1, 7, 8, 9, BLOCK - 1, BLOCK, BLOCK + 1, 5000)
SEED = 0x9ABCDEF1


def random_bits(seed, n):
    """Return 32 bits of MurmurHash3's finalizer, by integers of Python."""
    h = (n * GOLDEN + seed) % 2**32
    h = (h ^ (h >> 16)) * 0x85EBCA6B % 2**32
    h = (h ^ (h >> 13)) * 0xC2B2AE35 % 2**32
    return h ^ (h >> 16)


def stream(integers, bits):
    """Return the bytes of integers, the lowest bit first."""
    number = sum(integer << (bits * n) for n, integer in enumerate(integers))
    return number.to_bytes(-(-len(integers) * bits // 8), "little")


def scale_of(block, scale):
    """Return the value of the highest level; squares are added as documented."""
    if not np.isfinite(block).all():
        return np.float32(np.nan)
    sums = np.zeros(LANES)
    for n, value in enumerate(block.astype(np.float64)):
        sums[n % LANES] += value * value
    while len(sums) > 1:
        sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
    if scale == NORM:
        return np.float32(np.sqrt(sums[0]))
    largest = np.abs(block).max()
    if scale == LARGEST:
        return largest
    return min(largest, np.float32(2.5 * np.sqrt(sums[0] / len(block))))


def level_of(value, highest, count, draw):
    """Return the level of an element, in float32 as the kernels compute it."""
    factor = np.float32(count) / highest if highest > 0 else np.float32(0)
    if np.isnan(highest) or np.isinf(factor):
        return 0
    clipped = np.clip(value, -highest, highest)
    level = math.floor(clipped * factor + np.float32((draw >> 8) * 2.0**-24))
    return min(max(level, -count), count)


def reference(values, count, scale, random, width, seed):
    """Return the code: scales of the blocks, then the bit stream of the levels."""
    blocks = [values[n : n + width] for n in range(0, len(values), width)]
    scales = [scale_of(block, scale) for block in blocks]
    integers = []
    for n, value in enumerate(values):
        draw = random_bits(seed, n) if random else 1 << 31
        integers.append(count + level_of(value, scales[n // width], count, draw))
    return np.array(scales, np.float32).tobytes() + stream(
        integers, (2 * count).bit_length()
    )


def vectors(length):
    """Yield vectors: ordinary, zeros in a block, not finite, tiny and large values."""
    ordinary = np.random.default_rng(length).standard_normal(length, np.float32)
    yield ordinary
    yield np.where(np.arange(length) // BLOCK == 1, ordinary, np.float32(-0.0))
    for bad in (np.nan, np.inf, -np.inf):
        vector = ordinary.copy()
        vector[length // 2 : length // 2 + 1] = bad
        yield vector
    yield ordinary * np.float32(1e-41)
    yield np.clip(ordinary, -3, 3) * np.float32(1e38)


@pytest.mark.parametrize("count", (1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 63, 64, 127))
@pytest.mark.parametrize("scale, random", ((NORM, True), (LARGEST, False)))
def test_bytes_are_those_of_the_bit_stream(count, scale, random):
    codec = leveled(count, scale, random)
    lengths = LENGTHS if count in (1, 3, 127) else (9, BLOCK + 1)
    with np.errstate(all="ignore"):
        for length in lengths:
            for vector in vectors(length):
                expected = reference(vector, count, scale, random, BLOCK, SEED)
                code = np.full(codec.nbytes(length), 77, np.uint8)
                codec.encode(vector, code, SEED)
                assert code.tobytes() == expected


@pytest.mark.parametrize("scale", (LARGEST, CLIPPED))
def test_a_block_of_all_elements_has_one_scale(scale):
    codec = leveled(1, scale, random=True, block=WHOLE)
    with np.errstate(all="ignore"):
        for length in LENGTHS[1:]:
            for vector in vectors(length):
                expected = reference(vector, 1, scale, True, WHOLE, SEED)
                code = np.full(codec.nbytes(length), 77, np.uint8)
                codec.encode(vector, code, SEED)
                assert code.tobytes() == expected


@pytest.mark.parametrize("count", (1, 2, 4, 8, 16, 32, 127))  # 2 to 8 bits
def test_decoded_values_are_levels_times_a_step(count):
    codec, bits = leveled(count, LARGEST, random=False), (2 * count).bit_length()
    for length in LENGTHS:
        drawn = np.random.default_rng(count).integers(0, 2 * count + 1, length)
        blocks = -(-length // BLOCK)
        scales = np.arange(1, blocks + 1, dtype=np.float32)
        text = scales.tobytes() + stream(drawn.tolist(), bits)
        steps = np.repeat(scales / np.float32(count), BLOCK)[:length]
        expected = steps * (drawn - count).astype(np.float32)
        memory = np.frombuffer(b"x" + text, np.uint8)  # codes need no alignment
        assert decode(codec, memory[1:], length).tobytes() == expected.tobytes()


@pytest.mark.parametrize("bits", range(1, 9))
def test_packed_integers_are_the_bit_stream(bits):
    drawn = np.random.default_rng(bits).integers(0, 1 << bits, BLOCK, np.uint8)
    for length in (1, 2, 7, 8, 9, 63, 64, 65, BLOCK):
        words, parts = np.zeros(BLOCK // 8, np.uint64), drawn[:length]
        words.view(np.uint8)[:length] = parts
        expected = stream(parts.tolist(), bits)
        memory = np.full(len(expected) + 16, 77, np.uint8)
        pack(words, bits, memory[8:-8])
        assert memory.tobytes() == b"M" * 8 + expected + b"M" * 8
        unpack(memory[8:-8], bits, words)
        assert words.view(np.uint8)[:length].tolist() == parts.tolist()


def test_random_bits_are_those_of_the_hash():
    random = np.empty(BLOCK, np.uint32)
    for seed, first in ((0, 0), (SEED, 1536), (2**32 - 1, 2**32 - 5)):
        write_random(seed, first, random)
        expected = [random_bits(seed, first + n) for n in range(BLOCK)]
        assert random.tolist() == expected


@pytest.mark.parametrize("length", (0, 1, LANES - 1, LANES, LANES + 1, 5000))
def test_sums_of_squares_have_all_elements(length):
    values = np.random.default_rng(length).standard_normal(length, np.float32)
    expected = math.fsum(float(value) ** 2 for value in values)
    assert sum_of_squares(values) == pytest.approx(expected, rel=1e-14)
