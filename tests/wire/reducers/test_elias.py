"""Elias codes of levels: a slow reference, lossless, within the theorem's length."""

import math

import numpy as np
import pytest

from dml.wire.reducers.codecs import elias


def omega(integer):
    """Return the Elias omega code of an integer as text; the definition."""
    text = "0"
    while integer > 1:
        text = f"{integer:b}{text}"
        integer = integer.bit_length() - 1
    return text


def reference(levels):
    """Return the bits after the norm, as text."""
    text, last = "", -1
    for n in np.flatnonzero(levels):
        level = int(levels[n])
        text += omega(int(n) - last) + str(int(level < 0)) + omega(abs(level))
        last = int(n)
    return text


def text_of(bits):
    return "".join(f"{byte:08b}" for byte in bits.code)[: bits.length]


def vectors():
    draws = np.random.default_rng(0)
    yield np.zeros(0, np.int32)
    yield np.zeros(9, np.int32)
    yield np.int32([1])
    yield np.int32([-127])
    yield np.arange(-40, 40, dtype=np.int32)
    for length, share in ((8, 1.0), (1000, 0.02), (5000, 0.5)):
        chosen = draws.random(length) < share
        yield (draws.integers(-127, 128, length) * chosen).astype(np.int32)
    far = np.zeros(1 << 18, np.int32)
    far[[0, -1]] = 2**31 - 1, -(2**31 - 1)
    yield far


def test_bits_are_those_of_the_definition():
    expected = {1: "0", 2: "100", 3: "110", 4: "101000", 16: "10100100000"}
    assert {integer: omega(integer) for integer in expected} == expected
    for levels in vectors():
        bits = elias.encode(elias.Levels(np.float32(0.7), levels))
        norm = "".join(f"{byte:08b}" for byte in np.float32(0.7).tobytes())
        assert text_of(bits) == norm + reference(levels)
        assert len(bits.code) == math.ceil(bits.length / 8)


def test_a_decoded_code_is_what_was_encoded():
    for levels in vectors():
        bits = elias.encode(elias.Levels(np.float32(-3e-5), levels))
        norm, found = elias.decode(bits, len(levels))
        assert norm == np.float32(-3e-5) and found.tolist() == levels.tolist()


def test_the_bound_is_that_of_the_theorem():
    assert elias.bound(16, 4) == 32 * (3 + 1.5) + 32  # lg 2·32/32 = 1
    assert elias.bound(4, 2) == 8 * (3 + 1.5) + 32
    assert elias.bound(9, 1) == pytest.approx(4 * (3 + 1.5 * math.log2(5)) + 32)
