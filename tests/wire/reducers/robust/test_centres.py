"""Geometric median, centred clipping, and mixing before a rule."""

import numpy as np
import pytest

from dml.wire.reducers.robust import (
    bucketing,
    centred_clipping,
    clipping,
    geometric_median,
    mean,
    nnm,
)
from dml.wire.reducers.robust.points import Points, distances_to, squared_distances
from tests.wire.reducers.robust.small import attacked, estimate_of_sum, normal

HUGE = 1e30


def lengths(rows):
    return np.sqrt((rows.astype(float) ** 2).sum(axis=-1))


@pytest.mark.parametrize("seed", range(7))
def test_the_geometric_median_is_that_of_three_rounds_from_zero(seed):
    rows = attacked(9, 2, 40, seed) / 9  # terms, whose sum is estimated
    gradients = rows.astype(float) * 9
    centre = np.zeros(40)
    for _ in range(3):
        pulls = 1 / np.maximum(0.1, lengths(gradients - centre))
        centre = pulls @ gradients / pulls.sum()
    found = estimate_of_sum(geometric_median(2), rows)
    np.testing.assert_allclose(found, centre, rtol=1e-4, atol=1e-4)


def test_smoothing_is_that_of_gradients_not_of_terms():
    """All terms are shorter than 0.1; the gradients are not."""
    rows = np.array([[0.01], [0.02], [0.09]], np.float32)
    found = estimate_of_sum(geometric_median(1), rows)
    assert found[0] != pytest.approx(rows.sum(), rel=1e-2)


@pytest.mark.parametrize("radius", (None, 0.5, 3.0))
@pytest.mark.parametrize("seed", range(7))
def test_centred_clipping_moves_the_last_estimate_by_clipped_differences(radius, seed):
    rows, last = attacked(8, 2, 30, seed) / 8, normal(1, 30, 3)[0]
    for centre in (None, last):
        start = np.zeros(30) if centre is None else centre.astype(float)
        moves = rows.astype(float) * 8 - start
        limit = np.median(lengths(moves)) if radius is None else radius
        moves *= np.minimum(1, limit / np.maximum(lengths(moves), 1e-30))[:, None]
        found = estimate_of_sum(centred_clipping(2, radius), rows, centre=centre)
        np.testing.assert_allclose(
            found, start + moves.mean(axis=0), rtol=1e-4, atol=1e-4
        )
        assert lengths(found - start) <= limit * 1.0001


def test_distances_are_those_of_scaled_rows():
    rows = normal(4, 10)
    exact = ((7 * rows[:, None].astype(float) - 7 * rows) ** 2).sum(axis=2)
    np.testing.assert_allclose(
        squared_distances(Points(rows, 1, 7.0)), exact, rtol=1e-5, atol=1e-6
    )
    to_first = distances_to(Points(rows, 1, 7.0), 7 * rows[0])
    np.testing.assert_allclose(to_first, np.sqrt(exact[0]), rtol=1e-5, atol=1e-6)


def mixed(mixing, rows, faulty, scale=1.0, step=0):
    return mixing.mix(Points(rows, faulty, scale, step)).rows_NxD


@pytest.mark.parametrize("seed", range(7))
def test_each_vector_becomes_the_mean_of_its_nearest(seed):
    rows = attacked(9, 2, 12, seed)
    exact = rows.astype(float)
    found = mixed(nnm, rows, 2)
    for i in range(9):
        squares = ((exact - exact[i]) ** 2).sum(axis=1)
        squares[i] = -1  # itself, also among copies
        nearest = np.argsort(squares, kind="stable")[:7]
        means = exact[nearest].mean(axis=0)
        np.testing.assert_allclose(
            found[i], means, rtol=1e-5, atol=1e-5 * abs(means).max()
        )


def test_neighbours_are_the_vector_itself_and_the_first_of_equal_ones():
    rows = np.array([[1], [3], [5]], np.float32)
    assert mixed(nnm, rows, 1).ravel().tolist() == [2, 2, 4]


def test_buckets_are_means_of_a_permutation_of_pairs():
    rows = normal(8, 5)
    for step in range(5):
        buckets = mixed(bucketing, rows, 2, step=step)
        assert len(buckets) == bucketing.points(8) == 4
        np.testing.assert_allclose(buckets.mean(axis=0), rows.mean(axis=0), atol=1e-6)
        rows[7] = HUGE  # one attacker is in one bucket
        assert (np.abs(mixed(bucketing, rows, 2, step=step)) > 1e20).all(
            axis=1
        ).sum() == 1
        rows[7] = 0
    assert bucketing.points(7) == 4
    first = [mixed(bucketing, rows, 2, step=step).tobytes() for step in range(5)]
    assert len(set(first)) > 1


def test_the_longest_vectors_get_the_length_of_the_next():
    rows = normal(10, 50)
    rows[9] = HUGE
    before, after = lengths(rows), lengths(mixed(clipping, rows, 2, scale=10.0))
    clipped = int(2 * 2 / 10 * (10 - 2))
    assert clipped == 3
    limit = np.sort(before)[-1 - clipped]
    np.testing.assert_allclose(after, np.minimum(before, limit), rtol=1e-5)
    assert mixed(clipping, rows, 0) is rows


def test_huge_vectors_are_clipped_before_they_are_mixed():
    """Distances that followed from 1e60 would have no correct digit."""
    rows = normal(10, 200)
    rows[8:] = [[HUGE], [-HUGE]]
    honest = rows[:8].mean(axis=0)
    for rule in (geometric_median(2), mean(2), centred_clipping(2)):
        found = estimate_of_sum(rule, rows / 10, clipping, nnm)
        assert lengths(found - honest) < 2 * lengths(honest) + 1
