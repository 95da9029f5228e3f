"""Shares by bandwidth against linear programming and exhaustive search."""

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

from dml.types import BadInput
from dml.wire.plans.averaging.load_balance import integer_parts, level, shares


def draws(seed, members, clients=0):
    speeds = np.random.default_rng(seed).lognormal(0, 1.5, members)
    speeds[:clients] = 0
    return speeds


def least_time(speeds):
    """Return the least T with (1 + (g-2)w_i)/b_i <= T for owners, by the simplex."""
    owners = np.flatnonzero(speeds)
    g, n = len(speeds), len(owners)
    above = np.hstack([np.diag((g - 2) / speeds[owners]), -np.ones((n, 1))])
    equal = np.append(np.ones(n), 0)[None]
    return linprog(
        np.append(np.zeros(n), 1), above, -1 / speeds[owners], equal, [1.0]
    ).fun


@pytest.mark.parametrize("members, clients", ((2, 0), (3, 0), (5, 2), (16, 0), (16, 5)))
def test_the_time_is_the_least_of_the_linear_program(members, clients):
    for seed in range(10):
        speeds = draws(seed, members, clients)
        weights, time = level(speeds, members)
        assert weights.sum() == pytest.approx(1)
        assert (weights >= 0).all() and not weights[:clients].any()
        loads = 1 + (members - 2) * weights[clients:]
        assert (loads / speeds[clients:]).max() == pytest.approx(float(time))
        assert float(time) == pytest.approx(least_time(speeds), rel=1e-9)


def test_owners_of_shares_end_together_and_others_end_no_later():
    weights, _ = level(draws(3, 12), 12)
    ends = (1 + 10 * weights) / draws(3, 12)
    shared = ends[weights > 0]
    assert shared == pytest.approx(shared[0])
    assert weights[np.argmax(draws(3, 12))] == weights.max()
    # others would end after T with any share, so they have none
    assert (ends[weights == 0] >= shared[0]).all() and (weights == 0).any()


def test_equal_bandwidths_have_equal_shares():
    assert shares([2.0] * 4, 8).tolist() == [2, 2, 2, 2]
    assert shares([5.0, 0, 5.0], 7).tolist() == [4, 0, 3]


def test_groups_of_many_sizes_are_balanced_at_once():
    rows = [draws(seed, 3 + seed % 6, seed % 2) for seed in range(20)]
    padded = np.zeros((20, 8))
    for row, speeds in zip(padded, rows, strict=True):
        row[: len(speeds)] = speeds
    weights, times = level(padded, np.array([len(row) for row in rows]))
    for speeds, weight, time in zip(rows, weights, times, strict=True):
        alone, least = level(speeds, len(speeds))
        assert weight[: len(speeds)] == pytest.approx(alone)
        assert time == pytest.approx(float(least))


def test_no_owner_takes_for_ever_and_a_group_of_one_no_time():
    assert level(np.zeros(3), 3)[1] == np.inf
    assert level(np.array([4.0, 0]), 1)[1] == 0


@pytest.mark.parametrize("length", (0, 1, 7, 100, 12345))
def test_parts_sum_to_the_length_and_have_at_least_their_quotas(length):
    for seed in range(10):
        weights = np.append(draws(seed, 9), 0)
        parts = integer_parts(weights, length)
        assert parts.sum() == length and parts[-1] == 0
        quotas = weights / weights.sum() * length
        assert (parts >= np.floor(quotas * (1 - 1e-9))).all()
        order = np.argsort(weights)
        assert (np.diff(parts[order]) >= 0).all()


def test_a_longer_buffer_takes_no_element_from_a_part():
    weights = draws(2, 6)
    parts = np.array([integer_parts(weights, length) for length in range(200)])
    assert (np.diff(parts, axis=0) >= 0).all()


@pytest.mark.parametrize("length", range(1, 10))
def test_the_most_elements_per_weight_are_the_fewest_of_all_divisions(length):
    for weights in ([1.0, 2.5, 4.0], [5.0, 1.0, 1.0], [1.0, 1.0, 3.0]):

        def most(division, weights=weights):
            """Return the largest number of elements per weight."""
            return max(np.array(division) / weights)

        everything = itertools.product(range(length + 1), repeat=3)
        divisions = (d for d in everything if sum(d) == length)
        parts = integer_parts(np.array(weights), length)
        assert most(parts) == pytest.approx(min(map(most, divisions)))


@pytest.mark.parametrize("speeds", ([], [0.0, 0.0], [1.0, -1.0], [np.inf, 1.0]))
def test_bandwidths_without_an_owner_are_refused(speeds):
    with pytest.raises(BadInput, match="expected bandwidths"):
        shares(speeds, 4)
