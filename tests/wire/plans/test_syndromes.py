"""Syndromes: wrong terms are located, of any size; right ones are not suspected."""

from itertools import combinations

import numpy as np
import pytest

from dml.types import BadInput
from dml.wire.plans.codes.coding import cyclic, decoding, make_code, repetition
from dml.wire.plans.codes.syndromes import PROJECTIONS, check_sets, locate

LENGTH = 40


def encoded(made, seed=0, mean=0.0):
    """Return the terms of all workers, of parts of different sizes."""
    draws = np.random.default_rng(seed)
    parts = mean + draws.standard_normal((made.parts, LENGTH))
    parts *= np.exp(draws.standard_normal((made.parts, 1)))
    return (made.coefficients @ parts).astype(np.float32)


def found(made, terms):
    vectors = np.random.default_rng(9).uniform(-1, 1, (LENGTH, PROJECTIONS))
    terms = terms.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        located = locate(made, terms @ vectors, np.linalg.norm(terms, axis=1))
    return located if located is None else located.tolist()


def negate(terms, chosen):
    terms[chosen] *= -1


def copy_another(terms, chosen):
    # a code of 3 workers has equal terms
    terms[chosen] = 2 * terms[min(set(range(len(terms))) - set(chosen))]


def collude(terms, chosen):
    terms[chosen] = 7


def use_all_sizes(terms, chosen):
    sizes = 10.0 ** np.linspace(30, 0, len(chosen))
    terms[chosen] += sizes[:, None] * np.random.default_rng(5).standard_normal(LENGTH)


def change_one_element(terms, chosen):
    terms[chosen, 3] += 1


def send_nan(terms, chosen):
    terms[chosen[0], 5] = np.nan
    terms[chosen[1:]] *= 1.01


def send_infinity(terms, chosen):
    terms[chosen] = np.inf


ATTACKS = (negate, copy_another, collude, use_all_sizes, change_one_element)
ATTACKS += (send_nan, send_infinity)


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("workers, faulty", [(3, 1), (4, 1), (7, 2), (8, 3)])
def test_every_set_of_wrong_terms_is_located(workers, faulty, attack):
    made = cyclic(workers, 2 * faulty + 1)
    for size in range(1, faulty + 1):
        for chosen in combinations(range(workers), size):
            terms = encoded(made)
            attack(terms, list(chosen))
            assert found(made, terms) == list(chosen)


@pytest.mark.parametrize("mean", [0, 1000])
@pytest.mark.parametrize("workers, faulty", [(3, 1), (16, 3), (32, 3), (64, 2)])
def test_right_terms_are_not_suspected(workers, faulty, mean):
    made = cyclic(workers, 2 * faulty + 1)
    for seed in range(20):
        assert found(made, encoded(made, seed, mean)) == []
    assert found(made, np.zeros((workers, LENGTH), np.float32)) == []


def test_more_wrong_terms_than_the_code_corrects_are_noticed():
    made = cyclic(9, 5)
    terms = encoded(made)
    terms[[0, 4, 5]] *= -1
    assert found(made, terms) is None
    terms[[0, 4, 5]] = np.nan
    assert found(made, terms) is None


def test_errors_that_are_not_seen_are_harmless():
    made, terms = cyclic(16, 7), encoded(cyclic(16, 7))
    total = decoding(made, np.ones(16, bool)) @ terms
    for size in 10.0 ** np.arange(-8, -3):
        wrong = terms.copy()
        wrong[[3, 4, 5]] *= 1 + size
        right = np.ones(16, bool)
        right[found(made, wrong)] = False
        decoded = decoding(made, right) @ wrong
        assert np.abs(decoded - total).max() < 1e-4 * np.abs(terms).max()


def test_too_many_sets_are_refused():
    check_sets(cyclic(32, 9))
    check_sets(repetition(99, 33))
    with pytest.raises(BadInput, match="50000 sets of 5 of the workers, got 201376"):
        check_sets(make_code("cyclic:5", 32))
