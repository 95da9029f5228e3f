"""Deadlines from arrivals: scale, order, and regret against constant deadlines."""

import math

import numpy as np
import pytest

from dml.sim.delays import delay_distribution
from dml.wire.plans.averaging import deadlines
from dml.wire.plans.averaging.deadlines import close_time

ARRIVALS = [3.0, 1.0, 2.0, 7.0, 2.5]


def arrivals(text, groups=1000, members=16):
    draws = delay_distribution(text).draws(np.random.default_rng(1), groups * members)
    return draws.reshape(groups, members)


@pytest.mark.parametrize("scale", (1e-6, 0.5, 3.0, 2.0**40))
def test_a_deadline_has_the_scale_of_its_arrivals(scale):
    once = close_time(ARRIVALS, 3, 2.0)
    assert close_time(np.multiply(ARRIVALS, scale), 3, 2.0) == pytest.approx(
        scale * once, rel=1e-12
    )


def test_a_deadline_does_not_depend_on_the_order_of_arrivals():
    assert close_time(ARRIVALS, 3, 2.0) == close_time(sorted(ARRIVALS), 3, 2.0)


def test_a_group_stays_open_before_its_quorum():
    assert close_time(ARRIVALS, 6, 2.0) == math.inf
    assert close_time(ARRIVALS, 5, 2.0) < math.inf
    assert close_time([], 0, 2.0) == math.inf


def test_a_deadline_is_a_median_plus_spreads_and_at_least_the_break_even_wait():
    # median 2.5, absolute deviations .5 1.5 .5 4.5 0
    assert close_time(ARRIVALS, 1, 20.0) == 2.5 + 20 * 0.5
    assert close_time(ARRIVALS, 1, 2.0) == 7 + 7 / 5
    assert close_time([4.0, 4.0], 1, 0.0) == 4 + 4 / 2
    assert close_time([4.0, 4.0], 1, 0.0, lost=0.25) == 4.5
    assert close_time([4.0, 3.0], 1, 0.0, lost=0.0) == 4


def test_a_member_within_the_break_even_wait_raises_the_members_per_second():
    deadline = close_time(ARRIVALS, 1, 0.0)
    assert len(ARRIVALS) / max(ARRIVALS) == pytest.approx(
        (len(ARRIVALS) + 1) / deadline, rel=1e-12
    )


@pytest.mark.parametrize("lost", (1.0, 0.3, 0.0))
def test_many_groups_close_as_one_group_does_arrival_after_arrival(lost):
    rows = arrivals("pareto:1,1.2", 60, 9)
    rows[:20, 3] = np.inf  # never arrive
    rows[5, 2:] = np.inf  # no quorum
    closing, members = deadlines.adaptive(rows, 4, 3.0, lost)
    for row, time, count in zip(rows, closing, members, strict=True):
        inside = np.sort(row)
        for k in range(1, np.isfinite(inside).sum() + 1):
            deadline = close_time(inside[:k], 4, 3.0, lost) if k < 9 else inside[8]
            if k == 9 or inside[k] > deadline:
                break
        expected = (deadline, k) if np.isfinite(deadline) else (math.inf, 0)
        assert (time, count) == pytest.approx(expected, rel=1e-12)
    assert members[5] == 0


def test_a_full_group_closes_at_its_last_arrival():
    closing, members = deadlines.adaptive(np.array([[1.0, 1.0, 1.1]]), 2, 3.0)
    assert (closing, members) == (1.1, 3)


def test_a_member_at_the_deadline_is_in_time():
    # the deadline of two members after 2 seconds is 3
    closing, members = deadlines.adaptive(np.array([[2.0, 2.0, 3.0, 99.0]]), 2, 0.0)
    assert (closing, members) == (4.0, 3)


def test_each_group_may_have_its_own_quorum():
    rows = arrivals("lognormal:1,1", 50, 8)
    quorums = np.arange(50) % 8 + 1
    closing, members = deadlines.adaptive(rows, quorums, 2.0)
    for g in range(50):
        alone = deadlines.adaptive(rows[g : g + 1], int(quorums[g]), 2.0)
        assert (closing[g], members[g]) == alone
    assert (members >= quorums).all()


def test_a_constant_deadline_loses_groups_without_a_quorum():
    rows = np.array([[1.0, 2.0, 3.0], [1.0, 8.0, 9.0]])
    closing, members = deadlines.fixed(rows, 2, 4.0)
    assert closing.tolist() == [3, 4] and members.tolist() == [3, 0]
    assert deadlines.rate(closing, members) == pytest.approx(3 / 7)


def test_the_best_constant_is_the_best_of_all_constants():
    rows = arrivals("lognormal:1,1", 20, 5)
    _, best = deadlines.best_fixed(rows, 2, candidates=2000)
    times = np.concatenate([rows.ravel(), np.linspace(0, rows.max(), 500)])
    rates = [deadlines.rate(*deadlines.fixed(rows, 2, time)) for time in times]
    assert best == pytest.approx(max(rates), rel=1e-9)


DELAYS = (
    "constant:1",
    "shifted_exponential:0.01,1000",
    "shifted_exponential:100,0.01",
    "pareto:10,1.1",
    "lognormal:0.1,0.3",
    "lognormal:1000,2",
)


def test_the_regret_of_the_rule_is_below_a_tenth_where_each_constant_loses_half():
    bests, found, lost = [], [], []
    constants = np.geomspace(1e-3, 1e5, 60)
    for text in DELAYS:
        rows = arrivals(text)
        bests.append(deadlines.best_fixed(rows, 8)[1])
        found.append(deadlines.rate(*deadlines.adaptive(rows, 8, 3.0)))
        lost.append(
            [
                deadlines.regret(
                    deadlines.rate(*deadlines.fixed(rows, 8, c)), bests[-1]
                )
                for c in constants
            ]
        )
    for one, best in zip(found, bests, strict=True):
        assert deadlines.regret(one, best) <= 0.1
    assert np.max(lost, 0).min() >= 0.5
