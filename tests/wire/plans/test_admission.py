"""Admission of rollouts against exhaustive search, for every order of arrivals."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dml.types import BadInput
from dml.wire.plans.admission import Admission

SIZES = st.tuples(st.integers(1, 3), st.integers(0, 3), st.integers(1, 7))


def can_consume(deadlines, batch, version):
    """Return whether updates of `batch` each can meet all deadlines, by search."""
    if not deadlines:
        return True
    if min(deadlines) < version:
        return False
    count = min(batch, len(deadlines))
    return any(
        can_consume(tuple(sorted(rest)), batch, version + 1)
        for rest in {
            tuple(d for i, d in enumerate(deadlines) if i not in chosen)
            for chosen in itertools.combinations(range(len(deadlines)), count)
        }
    )


def legal_choice_exists(admission):
    """Return whether any choice of arrived rollouts leaves the others in time."""
    deadlines = {n: w + admission.lag for n, w in admission.versions.items()}
    return any(
        can_consume(
            tuple(sorted(d for n, d in deadlines.items() if n not in chosen)),
            admission.batch,
            admission.version + 1,
        )
        for chosen in itertools.combinations(admission.arrived, admission.batch)
    )


def play(admission, actors, choose, updates, check):
    """Run actors in any order; `choose` picks the next arrival."""
    playing, idle, consumed = [], actors, []
    while len(consumed) < updates:
        while idle and (number := admission.grant()) is not None:
            playing.append(number)
            idle -= 1
        check(admission)
        versions, version = dict(admission.versions), admission.version
        taken = admission.take()
        if taken is not None:
            consumed.append([version - versions[number] for number in taken])
            continue
        assert playing, "deadlock"
        admission.arrive(playing.pop(choose(len(playing))))
        idle += 1
    return consumed


@settings(max_examples=150)
@given(SIZES, st.data())
def test_no_arrival_order_violates_the_bound_or_deadlocks(sizes, data):
    batch, lag, actors = sizes
    consumed = play(
        Admission(batch, lag),
        actors,
        lambda count: data.draw(st.integers(0, count - 1)),
        8,
        lambda admission: None,
    )
    assert all(len(lags) == batch and max(lags) <= lag for lags in consumed)


@settings(max_examples=60)
@given(st.tuples(st.integers(1, 2), st.integers(0, 2), st.integers(1, 6)), st.data())
def test_an_update_waits_only_if_no_choice_of_rollouts_is_legal(sizes, data):
    batch, lag, actors = sizes

    def check(admission):
        before = admission.version
        legal = legal_choice_exists(admission)
        copy = Admission(batch, lag)
        copy.__dict__ |= {
            "version": before,
            "versions": dict(admission.versions),
            "arrived": list(admission.arrived),
            "outstanding": admission.outstanding.copy(),
            "ready": admission.ready.copy(),
        }
        assert (copy.take() is not None) == legal

    def choose(count):
        return data.draw(st.integers(0, count - 1))

    play(Admission(batch, lag), actors, choose, 4, check)


@pytest.mark.parametrize(("batch", "lag"), ((1, 0), (2, 1), (3, 4)))
def test_grants_fill_the_queue_and_one_more_must_wait(batch, lag):
    admission = Admission(batch, lag)
    numbers = [admission.grant() for _ in range(batch * (lag + 1) + 1)]
    assert numbers == [*range(batch * (lag + 1)), None]


def test_without_lag_an_update_has_the_rollouts_of_its_version():
    consumed = play(Admission(4, 0), 4, lambda count: count - 1, 5, lambda _: None)
    assert consumed == [[0] * 4] * 5


def test_a_slow_rollout_stops_updates_at_the_bound_and_a_dropped_one_does_not():
    admission = Admission(1, 2)
    slow = admission.grant()
    for _ in range(2):
        admission.arrive(admission.grant())
        assert admission.take() is not None
    admission.arrive(admission.grant())
    assert admission.take() is None  # the slow rollout would have a lag of 3
    admission.drop(slow)
    assert admission.take() is not None


def test_sizes_that_admit_nothing_are_refused():
    for batch, lag in ((0, 1), (1, -1)):
        with pytest.raises(BadInput, match="pass numbers in range"):
            Admission(batch, lag)
