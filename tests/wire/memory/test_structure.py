"""The numbers of a hypergraph against brute force over all pairs of its edges."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dml.types import BadInput, Edges
from dml.wire.memory.structure import safe_delay, structure


def made(count, width, density, seed):
    """Return edges and their incidence: rows at random, row 0 in most of them."""
    rng = np.random.default_rng(seed)
    touched = rng.random((count, width)) < density
    touched[:, 0] |= rng.random(count) < 0.8 * (seed % 3 > 0)
    touched[rng.integers(count), -1] = True
    starts = np.append(0, np.cumsum(touched.sum(1)))
    return Edges(starts, np.nonzero(touched)[1].astype(np.uint32)), touched


def met(touched):
    """Return which edges share a row."""
    return touched.astype(int) @ touched.T.astype(int) > 0


# Few edges: each row is a bitset. 300 edges: rows in 5 of them or more are.
@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([1, 2, 60, 64, 65, 300]),
    st.integers(1, 200),
    st.sampled_from([0, 0.005, 0.02, 0.3]),
    st.integers(0, 99),
)
def test_all_numbers_are_those_of_brute_force(count, width, density, seed):
    edges, touched = made(count, width, density, seed)
    pairs = met(touched)
    found = structure(edges, width + 3)
    assert found.edges == count and not found.sampled
    assert found.rows == touched.any(0).sum()
    assert found.omega == touched.sum(1).max()
    assert found.delta == pytest.approx(touched.sum(0).max() / count)
    assert found.rho == pytest.approx(pairs.sum(1).max() / count)
    np.fill_diagonal(pairs, False)
    average = pairs.sum(1).mean()
    assert found.conflicts == pytest.approx(average)
    assert found.usual == pytest.approx(count / average if average else math.inf)
    assert found.worst == safe_delay(found.omega, found.delta, found.rho)


@pytest.mark.parametrize("seed", (1, 2, 3))
def test_a_sample_is_near_and_its_rho_is_no_more_than_the_true_one(seed):
    edges, touched = made(300, 100, 0.02, seed)
    pairs = met(touched)
    found = structure(edges, 100, seed, work=500)
    assert found.sampled
    assert found.rho <= pairs.sum(1).max() / 300
    # those that may meet most are all looked at, beside the sample
    assert found.rho == pytest.approx(pairs.sum(1).max() / 300, rel=0.05)
    assert found.conflicts == pytest.approx(pairs.sum(1).mean() - 1, rel=0.2)
    assert found == structure(edges, 100, seed, work=500)
    assert found.conflicts != structure(edges, 100, seed + 1, work=500).conflicts


@given(st.integers(1, 10**4), st.floats(1e-7, 1), st.floats(1e-7, 1))
def test_at_the_safe_delay_the_steps_have_doubled(omega, delta, rho):
    delay = safe_delay(omega, delta, rho)
    assert delay > 0
    more = 6 * rho * delay + 6 * delay**2 * omega * math.sqrt(delta)
    assert more == pytest.approx(1)


def test_edges_that_touch_nothing_or_too_much_are_refused():
    with pytest.raises(BadInput, match="3 without rows"):
        structure(Edges(np.zeros(4, np.int64), np.zeros(0, np.uint32)), 5)
    with pytest.raises(BadInput, match="width=5, got 5"):
        structure(Edges(np.array([0, 1]), np.array([5], np.uint32)), 5)
