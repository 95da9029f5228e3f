"""Exact contractions against matrices and against many draws."""

import itertools

import numpy as np
import pytest

from dml.sim.averaging.groups import group_average
from dml.wire.plans.averaging import contraction
from dml.wire.plans.averaging.faults import Faults
from dml.wire.plans.averaging.graphs import topology
from dml.wire.plans.averaging.mixing import matrix


def measured(name, size, rounds, draws, absence=0.0):
    """Return mean and standard error of the variance after each round."""
    ratios = np.empty((draws, rounds + 1))
    for draw in range(draws):
        values = np.random.default_rng(draw).permutation(size).astype(float)
        topo = topology(name, size, seed=draw)
        ratios[draw, 0] = first = values.var()
        for t in range(rounds):
            group_average(values, topo, t, None, Faults(absence=absence, seed=draw))
            ratios[draw, t + 1] = values.var()
        ratios[draw] /= first
    return ratios.mean(0), ratios.std(0) / draws**0.5


def near(found, formula):
    means, errors = found
    return (np.abs(means - formula) <= 4 * errors + 1e-12).all()


@pytest.mark.parametrize("size, count", ((16, 8), (9, 3)))
@pytest.mark.parametrize("absence", (0.0, 0.3))
def test_independent_groups_contract_by_the_exact_formula(size, count, absence):
    found = measured(f"independent_groups:{count}", size, 1, 700, absence)
    exact = contraction.independent_groups(size, count, 1 - absence)
    assert near(found, [1, exact])
    if (size, absence) == (16, 0.0):  # the published bound is loose
        assert exact == pytest.approx(0.4037, abs=1e-4)
        published = contraction.published_groups(size, count)
        assert published == pytest.approx(0.469, abs=1e-3)
        assert not near(found, [1, published])


def test_equal_groups_contract_by_the_exact_formula():
    squares = (matrix(topology("random_groups:4", 20, 1), 0) ** 2).sum()
    assert (squares - 1) / 19 == pytest.approx(contraction.equal_groups(20, 5))
    assert near(measured("random_groups:4", 20, 1, 500), [1, 4 / 19])


def averaged(groups, inside):
    """Return the matrix of one round in which some ranks take part."""
    weights = np.eye(len(groups.label))
    for group in range(len(groups.sizes())):
        members = np.flatnonzero((groups.label == group) & inside)
        if len(members):
            weights[np.ix_(members, members)] = 1 / len(members)
    return weights


@pytest.mark.parametrize("sides", ((2, 3), (6,), (2, 2, 2)))
@pytest.mark.parametrize("participation", (1.0, 0.9, 0.4))
def test_a_grid_with_absences_contracts_as_all_outcomes_do(sides, participation):
    """The mean products of all values are averaged over all sets of present ranks."""
    size = int(np.prod(sides))
    topo = topology("grid:" + "x".join(map(str, sides)), size)
    products = (np.eye(size) - 1 / size) * size / (size - 1)
    exact = contraction.grid_variances(sides, 5, participation)
    for t in range(5):
        assert products.trace() / size == pytest.approx(exact[t], abs=1e-14)
        following = np.zeros_like(products)
        for outcome in itertools.product((False, True), repeat=size):
            present = sum(outcome)
            probability = participation**present
            probability *= (1 - participation) ** (size - present)
            if probability:
                weights = averaged(topo.groups(t), np.array(outcome))
                following += probability * weights @ products @ weights.T
        products = following


def test_a_full_grid_without_absences_is_exact_after_one_round_per_axis():
    exact = contraction.grid_variances((32,) * 4, 6)
    assert exact[:4] == pytest.approx((32.0 ** -np.arange(4) - 2**-20) / (1 - 2**-20))
    assert (exact[4:] < 1e-18).all()


@pytest.mark.parametrize(
    "name", ("ring", "torus", "exponential", "one_peer_exponential")
)
@pytest.mark.parametrize("size", (6, 12, 16))
def test_the_expected_variance_is_that_of_the_product_of_all_matrices(name, size):
    topo, product = topology(name, size), np.eye(size)
    stated = contraction.spectrum_variances(topo, 5)
    for t in range(6):
        squares = ((product - 1 / size) ** 2).sum() / (size - 1)
        assert stated[t] == pytest.approx(squares, abs=1e-12)
        product = matrix(topo, t) @ product


@pytest.mark.parametrize("name", ("ring", "torus", "exponential", "complete"))
def test_rounds_by_the_spectrum_are_the_first_below_the_target(name):
    topo = topology(name, 24)
    rounds = contraction.rounds_to(topo, 1e-6)
    variances = contraction.spectrum_variances(topo, rounds)
    assert variances[rounds] < 1e-6 <= variances[rounds - 1]
