"""Rules by coordinate: sorting networks, medians, trimmed means, signs."""

from itertools import product

import numpy as np
import pytest

from dml.wire.reducers.robust import (
    estimate,
    mean,
    median,
    nnm,
    registers,
    sign_majority,
    sorting,
    trimmed_mean,
)
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


@pytest.mark.parametrize("count, length", ((2, 1 << 16), (20, 65_543)))
def test_sums_in_registers_have_the_bits_of_sums_in_tiles(count, length):
    rows = normal(count, length)
    rows[:, :99] = np.round(rows[:, :99])  # ties
    rows[0, :40], rows[1, :40] = -0.0, 0.0
    assert registers.fits(rows) and not registers.fits(rows[:, ::2])
    for first, last in ((0, 1), ((count - 1) // 2, count // 2 + 1)):
        ranks = (first, last, 1 / 3, on_threads)
        found, finite = registers.sum_of_ranks(rows, *ranks)
        assert found.tobytes() == sorting.sum_of_ranks(rows, *ranks).tobytes()
        assert finite
        for column, value in ((-1, np.nan), (0, np.inf), (70, -np.inf), (5, 3e38)):
            bad = rows.copy()
            bad[-1, column] = value
            _, finite = registers.sum_of_ranks(bad, *ranks)
            assert finite == np.isfinite(value)


def test_sums_in_registers_are_written_between_start_and_stop_only():
    rows, sums = normal(3, 64), np.full(64, 9, np.float32)
    addresses = rows.ctypes.data, rows.strides[0], sums.ctypes.data
    registers.compiled(3, 1, 2)(addresses, 8, 45, 1.0)
    expected = np.full(64, 9, np.float32)
    expected[8:45] = np.median(rows[:, 8:45], axis=0)
    assert np.array_equal(sums, expected)


@pytest.mark.parametrize("make", (median, trimmed_mean))
def test_vectors_that_are_not_finite_are_dropped_from_long_ones(make):
    rows = normal(9, 1 << 16)
    rows[3, -1], rows[7, 5] = np.nan, np.inf
    expected = estimate(make(1), np.delete(rows, (3, 7), axis=0))
    assert estimate(make(3), rows).tobytes() == expected.tobytes()


@pytest.mark.parametrize("make", (median, trimmed_mean))
def test_long_vectors_are_mixed_before_their_columns_are_sorted(make):
    short = normal(7, 1 << 12)
    expected = np.tile(estimate(make(2), short, nnm), 16)
    found = estimate(make(2), np.tile(short, 16), nnm)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert not np.allclose(found, np.tile(estimate(make(2), short), 16), atol=1e-3)


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
