"""Faults of averaging: equal on all processes, with the stated probabilities."""

import numpy as np
import pytest

from dml.types import BadInput
from dml.wire.plans.averaging.faults import (
    LOST,
    Faults,
    arrivals,
    check_faults,
    participates,
    participation,
    present,
)

RANKS = np.arange(40_000)
OTHERS = RANKS[::-1]


def test_one_rank_draws_what_all_ranks_draw():
    faults = Faults(0.2, 0.3, 2, seed=5)
    every = arrivals(faults, 3, RANKS[:50], OTHERS[:50])
    alone = [int(arrivals(faults, 3, RANKS[k], OTHERS[k])[0]) for k in range(50)]
    assert every.tolist() == alone


def test_faults_have_the_stated_probabilities():
    found = arrivals(Faults(loss=0.2, seed=1), 9, RANKS, OTHERS)
    assert np.mean(found == LOST) == pytest.approx(0.2, abs=0.01)
    assert set(found) == {LOST, 9}
    found = present(Faults(absence=0.3, seed=1), 9, RANKS)
    assert np.mean(found) == pytest.approx(0.7, abs=0.01)
    found = arrivals(Faults(delay=3, seed=1), 9, RANKS, OTHERS)
    assert np.bincount(found)[9:] / len(RANKS) == pytest.approx(0.25, abs=0.01)
    faults = Faults(0.1, 0.2, 1, seed=1)
    inside = participates(faults, 9, RANKS).mean()
    assert inside == pytest.approx(participation(faults), abs=0.01)


def test_faults_differ_by_round_seed_direction_and_rank():
    draws = [
        tuple(arrivals(Faults(0.5, seed=seed), t, a, b))
        for seed, t, a, b in (
            (1, 0, RANKS[:64], OTHERS[:64]),
            (2, 0, RANKS[:64], OTHERS[:64]),
            (1, 1, RANKS[:64], OTHERS[:64]),
            (1, 0, OTHERS[:64], RANKS[:64]),
        )
    ]
    lost = [tuple(one == LOST for one in draw) for draw in draws]
    assert len(set(lost)) == 4


def test_an_outage_lasts_for_its_rounds():
    faults = Faults(absence=0.5, outage=4, seed=1)
    rounds = [present(faults, t, RANKS[:99]) for t in range(8)]
    for t in range(8):
        assert (rounds[t] == rounds[t // 4 * 4]).all()
    assert (rounds[0] != rounds[4]).any()


def test_a_message_arrives_when_both_peers_are_present_again():
    faults = Faults(absence=0.5, delay=2, seed=3)
    dest = (RANKS[:500] + 1) % 500
    arrival = arrivals(faults, 0, RANKS[:500], dest)
    here = np.array([present(faults, t, RANKS[:500]) for t in range(60)])
    delay = arrivals(Faults(delay=2, seed=3), 0, RANKS[:500], dest)
    for rank in range(500):
        both = here[:, rank] & here[:, dest[rank]]
        if not both[0]:
            assert arrival[rank] == LOST
        else:
            first = delay[rank] + np.flatnonzero(both[delay[rank] :])[0]
            assert arrival[rank] == first


@pytest.mark.parametrize(
    "faults",
    (Faults(loss=1.0), Faults(absence=-0.1), Faults(delay=-1), Faults(outage=0)),
)
def test_faults_out_of_range_are_refused(faults):
    with pytest.raises(BadInput, match="expected .* got .*; correct"):
        check_faults(faults)
