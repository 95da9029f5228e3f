"""Rounds of all volunteers at once against rounds of one volunteer after another."""

import math

import numpy as np
import pytest

from dml.sim.delays import delay_distribution
from dml.sim.volunteers.groups import Rules
from dml.sim.volunteers.means import group_means
from dml.sim.volunteers.population import Peers, Traits, population
from dml.sim.volunteers.rounds import simulate_round
from dml.wire.plans import swarm
from dml.wire.plans.averaging import load_balance
from dml.wire.plans.averaging.deadlines import close_time
from dml.wire.plans.averaging.grouping import grid_lines

CHURN = Traits(400.0, 30.0, 2e6, 0.2, 0.6)
STILL = Traits(bandwidth=2e6)
RULES = Rules(
    (3, 4),
    delay_distribution("lognormal:10,0.5"),
    2,
    4e7,
    lost=0.5,
    matchmaking=0.7,
    pieces=4,
)


def rounds(rules, traits, count, seed=3, size=None):
    """Simulate rounds; yield the peers before and after each, and its outcome."""
    generator = np.random.default_rng(seed)
    size = size or math.prod(rules.sides)
    peers = population(size, traits, generator)
    for t in range(count):
        before = Peers(*(value.copy() for value in vars(peers).values()))
        yield before, peers, simulate_round(peers, rules, traits, t, generator)


def average_by_hand(peers, rules, members):
    """Return when an average would end, relative, and the bytes that are sent."""
    if len(members) < 2 or not peers.bandwidth[members].any():
        return 0.0, 0.0, False
    shares, _ = load_balance.level(peers.bandwidth[members], len(members))
    load = rules.nbytes * (1 + (len(members) - 2) * shares)
    owners = peers.bandwidth[members] > 0
    return max(load[owners] / peers.bandwidth[members][owners]), load.sum(), True


def round_by_hand(before, after, rules, t, outcome):
    """Return members, begins, losses, bytes and lost members, group by group.

    The work has the finishes that were drawn.
    """
    present, finishes = before.present.copy(), after.finishes
    present[outcome.newcomers] = True
    included, lost, sent = np.zeros(len(present), bool), 0, 0.0
    vanished, contributed = [], []
    begins = before.begins.copy()
    groups = grid_lines(len(present), rules.sides, 0, t % len(rules.sides))
    capacity = rules.sides[t % len(rules.sides)]
    for group in range(len(groups.sizes())):
        seats = [r for r in np.flatnonzero(groups.label == group) if present[r]]
        if not seats:
            continue
        opening = min(before.begins[seats])
        waits = {
            r: max(0.0, finishes[r] - opening)
            for r in seats
            if before.leaves[r] >= finishes[r]
        }
        least = min(math.ceil(rules.quorum * capacity), len(waits))
        order = sorted(waits, key=waits.__getitem__)
        closing, members = math.inf, []
        for k in range(1, len(order) + 1):
            arrived = [waits[r] for r in order[:k]]
            deadline = close_time(arrived, least, rules.spreads, rules.lost)
            full = k == capacity
            next_one = waits[order[k]] if k < len(order) else math.inf
            if k >= least and (full or next_one > deadline):
                closing, members = (arrived[-1] if full else deadline), order[:k]
                break
        end = opening + closing + rules.matchmaking
        more, nbytes, averages = average_by_hand(before, rules, members)
        stayed = [r for r in members if before.leaves[r] >= end + more]
        vanished += [r for r in members if before.leaves[r] < end + more]
        contributed += [
            r for r in members if end + more > before.leaves[r] >= end + more / 2
        ]
        lost += averages and len(stayed) < len(members)
        sent += nbytes
        included[stayed] = averages
        begins[stayed] = end + more * (1 + (len(stayed) < len(members)))
        for r in set(order) - set(members):
            begins[r] = max(begins[r], opening + closing + rules.matchmaking)
    return included, begins, lost, sent, vanished, contributed


@pytest.mark.parametrize("traits", (STILL, CHURN))
def test_a_round_is_that_of_one_group_after_another(traits):
    losses, late = 0, 0
    for t, (before, after, outcome) in enumerate(rounds(RULES, traits, 40)):
        included, begins, lost, sent, vanished, contributed = round_by_hand(
            before, after, RULES, t, outcome
        )
        assert (outcome.included == included).all()
        assert outcome.lost == lost
        assert sorted(outcome.vanished) == sorted(vanished)
        assert sorted(outcome.vanished[outcome.contributed]) == sorted(contributed)
        assert not after.present[vanished].any()
        stays = after.present & before.present
        assert after.begins[stays] == pytest.approx(begins[stays])
        gone = len(before.begins) - after.present.sum()
        gone -= (~before.present).sum() - len(outcome.newcomers)
        assert outcome.sent == pytest.approx(sent + gone * RULES.nbytes)
        losses, late = losses + lost, late + len(contributed)
    assert (losses > 0) == (late > 0) == (traits is CHURN)


def test_equal_volunteers_average_all_together_and_are_charged_work_and_load():
    rules = Rules((3, 3), delay_distribution("constant:2"), 4, 9e6)
    average = 9e6 * (1 + 1 / 3) / 2e6  # shares of a third
    for t, (_, peers, outcome) in enumerate(rounds(rules, STILL, 4)):
        assert outcome.included.all() and not outcome.late and not outcome.lost
        assert outcome.averages == 3 and outcome.evaluations == 9 * 4
        assert peers.begins == pytest.approx((t + 1) * (8 + average))
        assert outcome.sent == pytest.approx(9 * 9e6 * (1 + 1 / 3))


def test_values_on_a_full_grid_are_exact_after_a_round_for_each_axis():
    rules = Rules((3, 2, 4), delay_distribution("constant:1"))
    values = np.random.default_rng(0).standard_normal((24, 5))
    mean = values.mean(0)
    for _, _, outcome in rounds(rules, STILL, 3):
        group_means(values, outcome.label, outcome.included)
    assert values == pytest.approx(np.broadcast_to(mean, values.shape), abs=1e-12)


def test_late_volunteers_keep_their_work_and_do_not_start_again():
    rules = RULES._replace(sides=(12,), work=delay_distribution("pareto:1,1.1"))
    _, one, two = (
        (b, Peers(*(v.copy() for v in vars(a).values())), o)
        for b, a, o in rounds(rules, STILL, 3)
    )
    late = ~one[2].included & one[0].present
    assert late.any()
    assert not np.isin(np.flatnonzero(late), two[2].started).any()
    assert (two[1].finishes[late] == one[1].finishes[late]).all()


def test_newcomers_wait_for_the_swarm_and_copy_members_of_the_last_average():
    seen = 0
    previous = None
    for before, after, outcome in rounds(RULES, CHURN, 12, seed=1):
        if previous is not None and len(outcome.newcomers):
            assert previous.included[outcome.donors].all()
            now = np.median(before.begins[before.present])
            assert (before.begins[outcome.newcomers] <= now).all()
            seen += len(outcome.newcomers)
        gone = before.present & ~after.present
        owners = before.bandwidth[before.present & (before.bandwidth > 0)]
        if gone.any() and not len(outcome.newcomers):
            wait = swarm.least_rounds(4, int(gone.sum())) * 4e7 / 4
            wait /= np.median(owners)
            joined = after.begins[gone] - before.leaves[gone]
            assert (joined >= wait * (1 - 1e-12)).all()  # and their absences
        previous = outcome
    assert seen


def test_a_short_constant_deadline_makes_no_average():
    work = delay_distribution("constant:10")
    rules = Rules((4, 4), work, deadline=1.0)
    ((_, peers, outcome),) = rounds(rules, STILL, 1)
    assert not outcome.averages and outcome.late == 16
    assert peers.begins == pytest.approx(1.0)


def test_evaluations_of_volunteers_that_leave_are_counted_up_to_their_departure():
    rules = Rules((4,), delay_distribution("constant:1"), steps=10)
    peers = population(4, STILL, np.random.default_rng(0))
    peers.leaves[:2] = [3.5, 0.25]
    outcome = simulate_round(peers, rules, STILL, 0, np.random.default_rng(0))
    assert outcome.evaluations == 3 + 0 + 10 + 10
    assert outcome.included.tolist() == [False, False, True, True]


def test_rounds_of_one_seed_are_equal():
    once, again = (rounds(RULES, CHURN, 4) for _ in range(2))
    for (_, one, sent), (_, other, sent_again) in zip(once, again, strict=True):
        assert (one.begins == other.begins).all()
        assert sent.sent == sent_again.sent
