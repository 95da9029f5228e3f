"""Schedules as data: what holds for each of them."""

import numpy as np
import pytest

from dml.wire.plans.schedules import SCHEDULES


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_no_rank_sends_twice_or_receives_twice_in_a_round(name):
    for size in range(1, 40):
        for one in SCHEDULES[name](size, 2 * size + 1):
            assert len(set(one.source.tolist())) == len(one.source) > 0
            assert len(set(one.dest.tolist())) == len(one.dest)
            assert len(one.nbytes) == len(one.source) == len(one.dest)
            assert not np.any(one.source == one.dest)


def test_groups_may_lie_anywhere():
    """Members of a group need not be neighbours: rank r on group r mod 3."""
    members = [[0, 3, 6], [1, 4, 7], [2, 5]]
    schedule = list(SCHEDULES["hierarchical"](8, 20, members=members))
    place = {
        rank: (g, k) for g, group in enumerate(members) for k, rank in enumerate(group)
    }
    for one in schedule:
        for source, dest in zip(one.source.tolist(), one.dest.tolist(), strict=True):
            same_group = place[source][0] == place[dest][0]
            same_place = place[source][1] == place[dest][1]
            assert same_group != same_place


def test_a_million_ranks_have_few_rounds():
    size = 1 << 20
    rounds = {name: 0 for name in ("butterfly", "halving_doubling", "tree", "ring")}
    for name in rounds:
        for one in SCHEDULES[name](size, 4 * size):
            rounds[name] += one.times
            assert len(one.source) <= size
    assert rounds == {
        "butterfly": 20,
        "halving_doubling": 40,
        "tree": 40,
        "ring": 2 * (size - 1),
    }
