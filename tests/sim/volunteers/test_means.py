"""Means of groups of rows in place, by chunks."""

import numpy as np
import pytest

from dml.sim.volunteers import means


@pytest.mark.parametrize("chunk", (1, 5, 1000))
def test_rows_inside_have_the_mean_of_their_group_and_others_stay(chunk, monkeypatch):
    monkeypatch.setattr(means, "CHUNK", chunk)
    generator = np.random.default_rng(0)
    rows, label = generator.standard_normal((40, 3)), generator.integers(7, size=40)
    inside = generator.random(40) < 0.7
    expected = rows.copy()
    for group in range(7):
        members = inside & (label == group)
        if members.any():
            expected[members] = rows[members].mean(0)
    means.group_means(rows, label, inside)
    assert rows == pytest.approx(expected)


def test_no_row_inside_changes_nothing():
    rows = np.ones((4, 2))
    means.group_means(rows, np.zeros(4, int), np.zeros(4, bool))
    assert (rows == 1).all()


def test_the_consensus_is_the_mean_squared_distance_of_present_rows_to_their_mean():
    rows = np.random.default_rng(1).standard_normal((9, 4))
    present = np.arange(9) % 3 > 0
    mean, spread = means.consensus(rows, present)
    assert mean == pytest.approx(rows[present].mean(0))
    assert spread == pytest.approx(((rows[present] - mean) ** 2).sum(1).mean())
