"""Detection of silent peers: times from round trips, tries from losses."""

import random

import pytest

from dml.wire.volunteers.liveness import RoundTrips, Watch, late_after


def false_alarms(trips, loss, peers, seed=0, rtt=1.0):
    """Simulate tries at live peers; return the number of peers taken for silent."""
    draws, now, silent = random.Random(seed), 0.0, 0
    for peer in range(peers):
        watch = Watch(now)
        while True:
            if trips.silent(watch):
                silent += 1
                break
            number = trips.start(peer, now)
            trips.tried(watch, now)
            if draws.random() >= loss:
                trips.arrived(peer, number, now + rtt)
                trips.answered(watch, now + rtt)
                now += rtt
                break
            now = watch.next
    return silent


@pytest.mark.parametrize("loss", (0.0, 0.1, 0.3))
def test_live_peers_are_silent_with_the_probability_risk_at_most(loss):
    trips = RoundTrips(4.0, 1e-3, 0.1)
    assert false_alarms(trips, loss, 5000) <= 5000 * 1e-3 * 3
    assert trips.lost / trips.tries == pytest.approx(loss, abs=0.02)


def test_losses_need_more_tries_and_their_seconds_are_those_of_the_tries():
    tries = []
    for loss in (0.0, 0.1, 0.3):
        trips = RoundTrips(4.0, 1e-9, 0.1)
        false_alarms(trips, loss, 500)
        watch, now, begun = Watch(0.0), 100.0, 100.0
        while not trips.silent(watch):
            trips.tried(watch, now)
            now = watch.next
        assert now - begun == pytest.approx(trips.silence())
        tries.append(watch.tries)
    assert tries[0] < tries[1] < tries[2]


def test_before_the_first_round_trip_the_wait_doubles():
    trips, watch, times = RoundTrips(4.0, 1e-9, 0.1), Watch(0.0), [0.0]
    for _ in range(4):
        trips.tried(watch, times[-1])
        times.append(watch.next)
    assert times == pytest.approx([0.0, 0.2, 0.6, 1.4, 3.0])


def test_an_answer_that_was_late_is_not_lost():
    trips, watch = RoundTrips(4.0, 1e-9, 0.1), Watch(0.0)
    for now in (0.0, 1.0):
        trips.start(1, now)
        trips.tried(watch, now)
    trips.answered(watch, 2.0)
    trips.answered(watch, 2.1)
    assert (trips.tries, trips.lost) == (2, 0)


def test_only_the_answer_of_the_peer_of_a_try_measures_a_round_trip():
    trips = RoundTrips(4.0, 1e-9, 0.1)
    number = trips.start(1, 0.0)
    trips.arrived(2, number, 1e-9)
    assert not trips.seconds
    trips.arrived(1, number, 2.0)
    assert list(trips.seconds) == [2.0]


def test_late_is_twice_the_median_or_the_spread_above_it():
    assert late_after([1.0, 1.0, 1.0], 4.0) == 2.0
    assert late_after([1.0, 2.0, 3.0], 4.0) == 6.0
    assert late_after([10.0, 20.0, 30.0], 4.0) == 60.0
