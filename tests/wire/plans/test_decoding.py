"""Codes against stragglers: any workers that suffice decode the sum of all parts."""

from itertools import combinations

import numpy as np
import pytest

from dml.types import BadInput
from dml.wire.plans.codes.coding import cyclic
from dml.wire.plans.codes.decoding import (
    CODES,
    conditioning,
    make_plan,
    missing_sets,
    random_code,
)

EXACT = [
    *((n, s, name) for n in (3, 4, 6, 7, 10) for s in (0, 1, 2) for name in CODES),
    *((9, 5, name) for name in ("repetition", "cyclic")),
]
EXACT = [
    (n, s, name)
    for n, s, name in EXACT
    if name != "uncoded" and (name != "repetition" or n % (s + 1) == 0)
    if (n, s, name) != (10, 2, "random")  # it loses more than 3 digits
]


def without(workers, missing):
    arrived = np.ones(workers, bool)
    arrived[list(missing)] = False
    return arrived


@pytest.mark.parametrize("workers, stragglers, name", EXACT)
def test_the_sum_is_decoded_without_any_stragglers(workers, stragglers, name):
    plan = make_plan(f"{name}:{stragglers}", workers)
    assert plan.load == stragglers + 1
    for missing in combinations(range(workers), stragglers):
        arrived = without(workers, missing)
        assert plan.suffices(arrived)
        weights = plan.weights(arrived)
        assert not weights[list(missing)].any()
        assert weights @ plan.code.coefficients == pytest.approx(1, abs=1e-7)


@pytest.mark.parametrize("name", ["cyclic", "random", "uncoded"])
def test_one_straggler_more_is_waited_for(name):
    plan = make_plan(f"{name}:2", 6)
    for missing in combinations(range(6), 3):
        assert not plan.suffices(without(6, missing))


def test_repetition_suffices_with_one_worker_of_each_group():
    plan = make_plan("repetition:2", 6)  # groups of 0 2 4 and 1 3 5
    for count in range(7):
        for missing in combinations(range(6), count):
            arrived = without(6, missing)
            groups = arrived[[0, 2, 4]].any() and arrived[[1, 3, 5]].any()
            assert plan.suffices(arrived) == groups
    assert sorted(plan.weights(without(6, [0, 3]))) == [0, 0, 0, 0, 1, 1]


def test_less_than_one_more_part_than_stragglers_does_not_suffice():
    """The bound of Tandon: a part of s workers is lost with them."""
    code = cyclic(7, 3)
    part_of_nobody = np.flatnonzero(code.coefficients[:, 4])
    left = code.coefficients[without(7, part_of_nobody)]
    assert len(part_of_nobody) == 3 and not left[:, 4].any()


def test_uncoded_scales_the_parts_that_arrived():
    plan = make_plan("uncoded:2", 8)
    assert not plan.exact and plan.load == 1
    weights = plan.weights(without(8, [1, 6]))
    assert weights.tolist() == [8 / 6 * (worker not in (1, 6)) for worker in range(8)]
    waiting = make_plan("uncoded:0", 8)
    assert waiting.exact and waiting.weights(np.ones(8, bool)).tolist() == [1] * 8
    assert not waiting.suffices(without(8, [3]))


def test_checks_of_random_codes_are_random_and_orthogonal_to_ones():
    code = random_code(9, 4)
    np.testing.assert_allclose(code.checks @ np.ones(9), 0, atol=1e-12)
    np.testing.assert_allclose(code.checks @ code.coefficients.T, 0, atol=1e-9)
    assert all(len(code.parts_of(worker)) == 4 for worker in range(9))
    assert not np.array_equal(code.checks, random_code(9, 4, seed=1).checks)


def test_a_random_code_loses_more_digits_than_a_bch_code():
    for workers, stragglers in ((4, 1), (10, 3), (32, 5)):
        bch = conditioning(cyclic(workers, stragglers + 1), stragglers)
        drawn = conditioning(random_code(workers, stragglers + 1), stragglers)
        assert bch.digits < drawn.digits and bch.weight < drawn.weight
        assert bch.residual < 1e-10


def test_all_sets_are_tried_if_there_are_few():
    assert len(set(missing_sets(10, 3))) == 120
    many = list(missing_sets(40, 4))
    assert len(many) == 40 + 300 and (38, 39, 0, 1) in many
    assert all(len(set(missing)) == 4 for missing in many)


@pytest.mark.parametrize(
    "text, workers, message",
    [
        ("cyclic:8", 64, "at most 3 decimal digits, got 8.0 without 8 of 64"),
        ("random:5", 32, "a random code .* got 5.0 without 5 of 32 .*; use cyclic"),
        ("repetition:1", 5, "divisible by 2, .*got 5; use 4 or 6"),
        ("cyclic:4", 4, "fewer stragglers than the 4 workers, got 4"),
        ("draco:1", 4, r"repetition\[:STRAGGLERS\], cyclic\[:STR.*got 'draco:1'"),
        ("cyclic:-1", 4, r"expected cyclic\[:STRAGGLERS\], got 'cyclic:-1'"),
    ],
)
def test_other_codes_are_refused(text, workers, message):
    with pytest.raises(BadInput, match=message):
        make_plan(text, workers)
