"""Codes of gradients: every choice of workers decodes the sum; losses of digits."""

from itertools import combinations

import numpy as np
import pytest

from dml.types import BadInput
from dml.wire.plans.codes.coding import (
    CODES,
    check_digits,
    cyclic,
    decoding,
    digits_lost,
    make_code,
    nodes,
    repetition,
)

CYCLIC = [(n, copies) for n in range(3, 10) for copies in range(1, n + 1)]


def available(workers, lost):
    """Return which workers remain without `lost`."""
    left = np.ones(workers, bool)
    left[list(lost)] = False
    return left


@pytest.mark.parametrize("workers, copies", CYCLIC)
def test_any_workers_but_one_fewer_than_the_copies_decode_the_sum(workers, copies):
    made = cyclic(workers, copies)
    for lost in combinations(range(workers), copies - 1):
        left = available(workers, lost)
        weights = decoding(made, left)
        assert weights @ made.coefficients == pytest.approx(1, abs=1e-8)
        assert not weights[~left].any()
    if copies < workers:
        with pytest.raises(BadInput, match="expected at least"):
            decoding(made, available(workers, range(copies)))


@pytest.mark.parametrize("workers, copies", CYCLIC)
def test_a_worker_has_consecutive_parts_and_the_checks_are_zero(workers, copies):
    made = cyclic(workers, copies)
    for worker in range(workers):
        parts = sorted((worker + np.arange(copies)) % workers)
        assert made.parts_of(worker).tolist() == parts
    assert made.checks.shape == (copies - 1, workers)
    np.testing.assert_allclose(made.checks @ made.coefficients, 0, atol=1e-12)
    powers = made.checks[1:] / made.checks[:-1]
    np.testing.assert_allclose(powers, np.tile(nodes(workers), (len(powers), 1)))


@pytest.mark.parametrize("workers, copies", CYCLIC)
def test_consecutive_workers_are_the_worst_to_lose(workers, copies):
    made = cyclic(workers, copies)
    sizes = np.abs(made.coefficients).sum(axis=1) / workers
    lost = copies // 2
    worst = max(
        np.abs(decoding(made, available(workers, chosen))) @ sizes
        for chosen in combinations(range(workers), lost)
    )
    assert 10 ** digits_lost(made, lost) == pytest.approx(max(worst, 1))


def test_repetition_selects_one_worker_of_each_group():
    made = repetition(9, 3)
    assert made.parts == 3 and made.copies == 3 and made.faulty == 1
    assert [made.workers_of(part).tolist() for part in range(3)] == [
        [0, 3, 6],
        [1, 4, 7],
        [2, 5, 8],
    ]
    weights = decoding(made, available(9, [0, 3, 4]))
    assert weights.tolist() == [0, 1, 1, 0, 0, 0, 1, 0, 0]
    with pytest.raises(BadInput, match=r"workers \[1, 4, 7\] for part 1, got none"):
        decoding(made, available(9, [1, 4, 7]))


def test_repetition_names_the_numbers_of_workers_that_fit():
    with pytest.raises(BadInput, match="divisible by 3.*got 8; use 6 or 9 workers"):
        make_code("repetition:1", 8)
    assert make_code("repetition", 9) is make_code("repetition", 9)


@pytest.mark.parametrize("name", CODES)
def test_a_code_corrects_its_number_of_wrong_terms(name):
    made = make_code(f"{name}:2", 10)
    assert (made.copies, made.faulty, made.workers) == (5, 2, 10)
    with pytest.raises(BadInput, match="expected at least 11 workers for 11 copies"):
        make_code(f"{name}:5", 10)


@pytest.mark.parametrize("text", ["draco:1", "cyclic:x", "cyclic:-1", "repetition:1.5"])
def test_other_names_are_refused(text):
    wanted = r"expected (a code of .*)?(repetition|cyclic)\[:FAULTY\].*, got "
    with pytest.raises(BadInput, match=wanted):
        make_code(text, 9)


def test_codes_that_lose_too_many_digits_are_refused():
    made = make_code("cyclic:4", 32)
    assert digits_lost(made, 4) == pytest.approx(1.8, abs=0.1)
    assert digits_lost(repetition(32, 8), 7) == 0
    with pytest.raises(BadInput, match="at most 3 decimal digits, got 4.5"):
        check_digits(cyclic(64, 5), 4)  # four stragglers of 64 workers
