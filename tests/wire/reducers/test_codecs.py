"""Codes of gradients: their bytes, their errors, and what they must not hide."""

import math

import numpy as np
import pytest

from dml.types import BadInput
from dml.wire.reducers.codecs import decode
from dml.wire.reducers.codecs.hashing import seed_of, write_random
from dml.wire.reducers.codecs.largest import top_k
from dml.wire.reducers.codecs.levels import BLOCK, int8, qsgd, terngrad
from dml.wire.reducers.codecs.powers import natural
from dml.wire.reducers.codecs.signs import one_bit, sign

# by name: a codec, and the bytes of the code of n elements
CODECS = {
    "sign": (sign(), lambda n: 4 + math.ceil(n / 8)),
    "one_bit": (one_bit(), lambda n: 8 + math.ceil(n / 8)),
    "top_k": (top_k(0.1), lambda n: 8 * math.ceil(0.1 * n)),
    "natural": (natural(), lambda n: n + math.ceil(n / 8)),
    "terngrad": (terngrad(), lambda n: 4 + math.ceil(n / 4)),
    "int8": (int8(), lambda n: 4 * math.ceil(n / BLOCK) + n),
    "qsgd 1": (qsgd(1), lambda n: 4 * math.ceil(n / BLOCK) + math.ceil(n / 4)),
    "qsgd 4": (qsgd(4), lambda n: 4 * math.ceil(n / BLOCK) + math.ceil(n / 2)),
    "qsgd 127": (qsgd(127), lambda n: 4 * math.ceil(n / BLOCK) + n),
}
UNBIASED = sorted(name for name, (codec, _) in CODECS.items() if codec.unbiased)
every = pytest.mark.parametrize("name", CODECS)


def values(length, seed=0):
    draws = np.random.default_rng(seed)
    spread = np.exp(draws.uniform(-2, 2, length))
    return (draws.standard_normal(length) * spread).astype(np.float32)


def code_of(name, vector, seed=1):
    """Return the code of a vector; bytes around it must not change."""
    codec, _ = CODECS[name]
    memory = np.full(codec.nbytes(len(vector)) + 16, 77, np.uint8)
    code = memory[8:-8]
    if len(vector):
        codec.encode(vector, code, seed)
    assert (memory[:8] == 77).all() and (memory[-8:] == 77).all()
    return code


def decoded(name, vector, seed=1):
    return decode(CODECS[name][0], code_of(name, vector, seed), len(vector))


@every
@pytest.mark.parametrize("length", (0, 1, 2, 7, 8, 9, BLOCK - 1, BLOCK, 3 * BLOCK + 5))
def test_a_code_has_the_bytes_of_its_formula(name, length):
    codec, formula = CODECS[name]
    assert codec.nbytes(length) == (formula(length) if length else 0)
    vector = values(length)
    found = decoded(name, vector)
    assert np.isfinite(found).all() and found.shape == vector.shape
    # decoded values are added: a second code doubles them
    total = found.copy()
    if length:
        codec.add(code_of(name, vector), total)
    assert total.tolist() == (2 * found).tolist()


@every
def test_zeros_stay_zero_and_equal_seeds_give_equal_codes(name):
    assert not decoded(name, np.zeros(BLOCK + 3, np.float32)).any()
    vector = values(BLOCK + 3)
    same = [code_of(name, vector, seed=5).tobytes() for _ in range(2)]
    assert same[0] == same[1]
    other = code_of(name, vector, seed=6).tobytes()
    assert (same[0] != other) == (name in UNBIASED)


@every
@pytest.mark.parametrize("bad", (np.nan, np.inf, -np.inf))
def test_values_that_are_not_finite_remain_visible(name, bad):
    vector = values(2 * BLOCK)
    vector[BLOCK + 7] = bad
    with np.errstate(invalid="ignore"):
        assert not np.isfinite(decoded(name, vector)).all()


@every
def test_the_last_elements_and_all_blocks_are_coded(name):
    for length in (5, 9, BLOCK + 3):
        last = np.zeros(length, np.float32)
        last[-1] = 5
        assert decoded(name, last)[-1] > 0
    block = values(BLOCK)
    first, second = np.split(decoded(name, np.tile(block, 2)), 2)
    if name in UNBIASED:  # other random numbers
        assert first.tolist() != second.tolist()
    large = np.array([1e20, 1, 2], np.float32)  # its square is no float32
    assert np.isfinite(decoded(name, large)).all()
    constant = np.full(100, 0.1, np.float32)
    if name != "top_k":
        total = sum(decoded(name, constant, seed) for seed in range(200))
        assert total.mean() / 200 == pytest.approx(0.1, rel=0.05)


def test_seeds_differ_by_rank_and_step():
    seeds = {seed_of(step, rank) for step in range(20) for rank in range(20)}
    assert len(seeds) == 400


@pytest.mark.parametrize("name", UNBIASED)
def test_unbiased_codes_are_right_on_average(name):
    """z-test over seeds; TernGrad estimates the clipped values."""
    vector, count = values(48), 4000
    found = np.array([decoded(name, vector, seed_of(n, 3)) for n in range(count)])
    expected = vector.astype(np.float64)
    if name == "terngrad":
        bound = 2.5 * np.sqrt((expected**2).mean())
        expected = np.clip(expected, -bound, bound)
    level = np.abs(found[found != 0]).min()  # rare levels have too small a variance
    variance = np.maximum(found.var(axis=0), level * np.abs(vector))
    deviation = np.sqrt(variance / count) + 1e-6 * np.abs(vector)
    assert (np.abs(found.mean(axis=0) - expected) < 5 * deviation).all()
    errors = ((found - expected) ** 2).sum(axis=1).mean() / (expected**2).sum()
    if name.startswith("qsgd"):  # Alistarh 2017, lemma 3.1
        levels = int(name.split()[1])
        assert errors <= min(48 / levels**2, math.sqrt(48) / levels)
    if name == "natural":
        assert errors <= 1 / 8
    if name == "terngrad":  # each |x| (s - |x|)
        largest = np.abs(expected).max()
        variance = (np.abs(expected) * (largest - np.abs(expected))).sum()
        assert errors == pytest.approx(variance / (expected**2).sum(), rel=0.1)


@pytest.mark.parametrize("length", (1, 7, 9, BLOCK - 1, BLOCK, 2 * BLOCK + 70))
def test_bits_of_signs_and_exponents_are_those_of_each_element(length):
    vector = values(length)
    vector[length // 2] = -0.0
    signs = np.packbits(vector < 0, bitorder="little").tobytes()
    assert code_of("sign", vector)[4:].tobytes() == signs
    assert code_of("one_bit", vector)[8:].tobytes() == signs
    random = np.empty(length, np.uint32)
    write_random(5, 0, random)
    absolute = np.abs(vector).view(np.uint32)
    exponents = ((absolute + (random >> 9)) >> 23).astype(np.uint8)
    assert code_of("natural", vector, seed=5).tobytes() == exponents.tobytes() + signs


def test_scaled_signs_have_the_mean_size_and_zero_is_positive():
    vector = np.array([0.4, -0.1, 0.0, -0.5, -0.0], np.float32)
    assert decoded("sign", vector) == pytest.approx([0.2, -0.2, 0.2, -0.2, 0.2])
    above, below = 0.4 / 3, -0.3
    expected = [above, below, above, below, above]
    assert decoded("one_bit", vector) == pytest.approx(expected)


@pytest.mark.parametrize("length", (1, 9, 10, 11, 5000))
def test_the_largest_elements_are_sent_exactly_and_ties_by_position(length):
    draws = np.random.default_rng(length)
    for vector in (
        values(length),
        draws.integers(-3, 4, length).astype(np.float32),  # many ties
        np.full(length, -2, np.float32),
        (draws.standard_normal(length) * 1e-40).astype(np.float32),
    ):
        k = math.ceil(0.1 * length)
        chosen = np.argsort(-np.abs(vector), kind="stable")[:k]
        expected = np.zeros_like(vector)
        expected[chosen] = vector[chosen]
        assert decoded("top_k", vector).tolist() == expected.tolist()
        positions = code_of("top_k", vector)[: 4 * k].view(np.int32)
        assert positions.tolist() == sorted(chosen)


def test_powers_of_two_are_finite_for_all_finite_values():
    largest = np.float32(np.finfo(np.float32).max)
    below = np.nextafter(np.float32(2.0**127), np.float32(0))
    for seed in range(20):
        found = decoded(
            "natural", np.float32([largest, -largest, below, 2.0**127]), seed
        )
        assert found.tolist()[:2] == [2.0**127, -(2.0**127)]
        assert found[2] in (2.0**126, 2.0**127) and found[3] == 2.0**127


def test_integers_of_8_bits_are_within_half_a_level():
    vector = values(3 * BLOCK + 5)
    vector[4] = 1e3  # the highest level of its block
    found = decoded("int8", vector)
    for start in range(0, len(vector), BLOCK):
        block = slice(start, start + BLOCK)
        level = np.abs(vector[block]).max() / 127
        assert np.abs(found[block] - vector[block]).max() <= level * 0.5001
    assert found[4] == 1e3


def test_arguments_out_of_range_are_refused():
    for make, value in ((top_k, 0), (top_k, 1.5), (qsgd, 0), (qsgd, 128)):
        with pytest.raises(BadInput, match=f"expected .* got {value}; correct it"):
            make(value)
