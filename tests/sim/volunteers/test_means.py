"""Means of groups of rows in place, by chunks."""

import numpy as np
import pytest

from dml.sim.volunteers import means
from dml.sim.volunteers.rounds import Outcome


@pytest.mark.parametrize("chunk", (1, 5, 1000))
def test_included_rows_have_the_mean_of_their_group_and_others_stay(chunk, monkeypatch):
    monkeypatch.setattr(means, "CHUNK", chunk)
    generator = np.random.default_rng(0)
    rows, label = generator.standard_normal((40, 3)), generator.integers(7, size=40)
    included = generator.random(40) < 0.7
    expected = rows.copy()
    for group in range(7):
        members = included & (label == group)
        if members.any():
            expected[members] = rows[members].mean(0)
    means.group_means(rows, label, included)
    assert rows == pytest.approx(expected)


def test_no_included_row_changes_nothing():
    rows = np.ones((4, 2))
    means.group_means(rows, np.zeros(4, int), np.zeros(4, bool))
    assert (rows == 1).all()


def test_the_consensus_is_the_mean_squared_distance_of_present_rows_to_their_mean():
    rows = np.random.default_rng(1).standard_normal((9, 4))
    present = np.arange(9) % 3 > 0
    mean, spread = means.consensus(rows, present)
    assert mean == pytest.approx(rows[present].mean(0))
    assert spread == pytest.approx(((rows[present] - mean) ** 2).sum(1).mean())


def test_parts_of_lost_members_stay_local_and_others_have_the_mean_of_the_senders():
    rows = np.arange(5)[:, None] * np.ones(8) + np.arange(8)
    shares = np.array([0.25, 0, 0.5, 0.25, 0])  # parts of 2, 0, 4 and 2 elements
    first = rows.copy()
    stayed, vanished = np.array([3, 0]), np.array([2, 1])
    means.part_means(rows, stayed, vanished, np.array([False, True]), shares)
    mean = first[[0, 1, 3]].mean(0)  # over the members that sent their values
    for peer in stayed:
        assert rows[peer, :2] == pytest.approx(mean[:2])
        assert (rows[peer, 2:6] == first[peer, 2:6]).all()
        assert rows[peer, 6:] == pytest.approx(mean[6:])
    assert (rows[[1, 2, 4]] == first[[1, 2, 4]]).all()


def test_a_round_averages_complete_and_broken_groups():
    label = np.array([0, 0, 1, 1, 1, 2])  # no member of the last group stayed
    nobody = np.zeros(0, int)
    outcome = Outcome(
        nobody,
        nobody,
        nobody,
        label,
        included=np.array([True, True, True, True, False, False]),
        vanished=np.array([4, 5]),
        contributed=np.array([True, True]),
        shares=np.array([0.5, 0.5, 0.5, 0, 0.5, 0]),
        averages=2,
        lost=1,
        late=0,
        evaluations=0,
        sent=0.0,
    )
    rows = np.arange(12.0).reshape(6, 2)
    means.average(rows, outcome)
    assert rows.tolist() == [[1, 2], [1, 2], [6, 5], [6, 7], [8, 9], [10, 11]]
