"""Rules by coordinate: sorting networks, medians, trimmed means, signs."""

from itertools import product

import numpy as np
import pytest

from dml.wire.reducers.robust import estimate, mean, median, sign_majority, trimmed_mean
from dml.wire.reducers.robust.networks import compare_exchange, network
from dml.wire.reducers.robust.sorting import near_median
from dml.wire.reducers.robust.threads import on_threads, serially
from tests.wire.reducers.robust.small import estimate_of_sum, normal


@pytest.mark.parametrize("count", range(1, 11))
def test_a_network_sorts_all_zeros_and_ones_and_so_all_values(count):
    """The 0-1 principle; pruned networks have the wanted outputs."""
    columns = np.array(list(product((0, 1), repeat=count)), np.float32).T.copy()
    expected = np.sort(columns, axis=0)
    for first in range(count):
        for last in range(first + 1, count + 1):
            tile = columns.copy()
            compare_exchange(tile, network(count, first, last))
            assert np.array_equal(tile[first:last], expected[first:last])


def test_a_pruned_network_has_fewer_comparators():
    assert len(network(20, 9, 11)) < len(network(20, 4, 16)) < len(network(20, 0, 20))


@pytest.mark.parametrize("count", range(1, 12))
@pytest.mark.parametrize("length", (0, 1, 513, 1500))
def test_medians_and_trimmed_means_equal_those_of_numpy(count, length):
    rows = normal(count, length)
    middle = estimate(median((count - 1) // 2), rows)
    assert np.array_equal(middle, np.median(rows, axis=0))
    for faulty in range((count + 1) // 2):
        kept = np.sort(rows, axis=0)[faulty : count - faulty]
        found = estimate(trimmed_mean(faulty), rows)
        np.testing.assert_allclose(found, kept.astype(float).mean(axis=0), rtol=2e-7)


def test_a_trimmed_mean_without_attackers_is_the_mean():
    for count in (1, 3, 7, 20):
        rows = normal(count, 1000)
        found = estimate_of_sum(trimmed_mean(0), rows)
        assert found.tobytes() == estimate_of_sum(mean(0), rows).tobytes()
        exact = np.round(rows * 100)  # sums of whole numbers have no rounding errors
        found = estimate_of_sum(trimmed_mean(0), exact)
        assert np.array_equal(found, exact.sum(axis=0))
    # added in the order of size, -2^60 + 1 would lose the 1
    lost = np.array([[2.0**60], [-(2.0**60)], [1]], np.float32)
    assert estimate_of_sum(trimmed_mean(0), lost) == 1


@pytest.mark.parametrize("make", (median, trimmed_mean))
def test_estimates_stay_in_the_range_of_honest_values(make):
    for count, faulty in ((3, 1), (5, 2), (8, 3), (20, 4)):
        rows = normal(count, 300)
        low, high = rows[faulty:].min(axis=0), rows[faulty:].max(axis=0)
        for value in (1e30, -1e30, 0.5, 0, 3e38):
            rows[:faulty] = value * np.sign(normal(faulty, 300, 1))
            found = estimate(make(faulty), rows)
            assert ((low <= found) & (found <= high)).all()


def test_signs_are_those_of_most_values_with_the_median_size():
    for count in (3, 4, 9):
        rows = np.round(2 * normal(count, 600)) / 2  # with zeros and ties
        negative = 2 * (rows < 0).sum(axis=0) > count
        sizes = np.median(np.abs(rows), axis=0)
        expected = np.where(negative, -sizes, sizes)
        assert np.array_equal(estimate(sign_majority(1), rows), expected)


def test_values_near_the_median_are_those_of_least_distance():
    for count, kept in ((3, 1), (7, 3), (9, 5), (12, 4)):
        rows = normal(count, 700)
        middle = np.median(rows, axis=0)
        order = np.argsort(np.abs(rows - middle), axis=0)[:kept]
        nearest = np.take_along_axis(rows, order, axis=0).astype(float)
        found = near_median(rows, kept, 1 / kept, serially)
        np.testing.assert_allclose(found, nearest.mean(axis=0), rtol=1e-6, atol=1e-7)


def test_threads_do_not_change_bits():
    rows = normal(7, 300_001)
    for make in (mean, median, trimmed_mean, sign_majority):
        found = [estimate(make(2), rows, run=run) for run in (serially, on_threads)]
        assert found[0].tobytes() == found[1].tobytes()
