"""Protocols run on virtual ranks, and evaluated: equal values, the mean conserved."""

import numpy as np
import pytest

from dml import sim
from dml.sim.averaging import gossip as evaluated_gossip
from dml.sim.averaging import groups as evaluated_groups
from dml.sim.averaging import relay_sum as evaluated_relay
from dml.types import BadInput
from dml.wire.averaging import push_sum as push
from dml.wire.averaging.gossip import gossip
from dml.wire.averaging.groups import group_average
from dml.wire.averaging.push_sum import push_sum
from dml.wire.averaging.relay_sum import RelaySum, relay_sum
from dml.wire.comm import Metered
from dml.wire.plans.averaging.faults import NO_FAULTS, Faults
from dml.wire.plans.averaging.graphs import topology
from dml.wire.plans.averaging.mixing import matrix
from dml.wire.plans.trees import tree

FAULTS = (
    NO_FAULTS,
    Faults(loss=0.2, seed=1),
    Faults(absence=0.2, seed=2),
    Faults(delay=2, seed=3),
    Faults(0.1, 0.2, 3, 2, seed=4),
)
GRAPHS = ("ring", "torus", "exponential", "one_peer_exponential", "complete", "tree")
LENGTH = 3


def start(rank):
    """Return the values of a rank: no two are alike."""
    return np.sqrt(2.0 + rank) * np.arange(1, LENGTH + 1)


def ran(protocol, plan, size, rounds, faults=NO_FAULTS, finish=None, dtype=float):
    """Run a protocol; return the values after each round, rounds x ranks x length."""

    def program(comm):
        buffer, state, history = start(comm.rank).astype(dtype), None, []
        for t in range(rounds):
            state = protocol(comm, buffer, plan, t, state, faults)
            history.append(finish(buffer, state) if finish else buffer.copy())
        return history

    return np.array(sim.run(program, size)).swapaxes(0, 1)


def starts(size):
    return np.array([start(rank) for rank in range(size)])


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("size", (1, 2, 3, 8, 13))
def test_gossip_multiplies_by_the_matrix_of_the_round(name, size):
    plan, values = topology(name, size), starts(size)
    for t, found in enumerate(ran(gossip, plan, size, 5)):
        values = matrix(plan, t) @ values
        assert np.allclose(found, values, atol=1e-13)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("size", (1, 2, 7, 8))
def test_push_sum_multiplies_value_and_weight_by_the_matrix_of_the_round(name, size):
    plan, values = topology(name, size), starts(size)
    weights = np.ones(size)
    found = ran(push_sum, plan, size, 5, finish=lambda b, s: np.append(b, s.weight))
    for t, now in enumerate(found):
        values, weights = matrix(plan, t) @ values, matrix(plan, t) @ weights
        assert np.allclose(now, np.c_[values, weights], atol=1e-13)


@pytest.mark.parametrize("faults", FAULTS)
@pytest.mark.parametrize("name", GRAPHS)
def test_gossip_evaluated_has_the_bits_of_gossip_that_ran(name, faults):
    plan, values, state = topology(name, 12), starts(12)[:, 1].copy(), None
    for t, found in enumerate(ran(gossip, plan, 12, 12, faults)):
        state = evaluated_gossip.gossip(values, plan, t, state, faults)
        assert (found[:, 1] == values).all()


@pytest.mark.parametrize("faults", FAULTS)
@pytest.mark.parametrize("name", GRAPHS)
def test_push_sum_conserves_mass_and_is_evaluated_as_it_ran(name, faults):
    def finish(buffer, state):
        values, weight = push.mass(buffer, state)
        own = push.estimate(buffer, state)
        return np.concatenate([own, values, [weight, state.weight]])

    plan, values, state = topology(name, 12), starts(12)[:, 1].copy(), None
    found = ran(push_sum, plan, 12, 14, faults, finish)
    for t, now in enumerate(found):
        state = evaluated_gossip.push_sum(values, plan, t, state, faults)
        assert np.allclose(now[:, 1], values / state.weights, rtol=1e-12)
        assert np.allclose(now[:, -1], state.weights, rtol=1e-12)
        total = now[:, LENGTH:-1].sum(0)  # with messages in transit
        assert np.allclose(total, [*starts(12).sum(0), 12], rtol=1e-12)
        mass = evaluated_gossip.mass(values, state, t)
        assert np.allclose(mass, [starts(12)[:, 1].sum(), 12], rtol=1e-12)
    in_transit = found[:, :, -2].sum(1) - found[:, :, -1].sum(1)
    assert (in_transit.max() > 0.5) == bool(faults.delay)


def test_under_losses_push_sum_finds_the_mean_and_gossip_another_value():
    faults, plan = Faults(loss=0.2, seed=1), topology("exponential", 16)
    mean = starts(16)[:, 0].mean()
    pushed = ran(push_sum, plan, 16, 60, faults, push.estimate)[-1, :, 0]
    mixed = ran(gossip, plan, 16, 60, faults)[-1, :, 0]
    assert np.allclose(pushed, mean, atol=1e-9)
    assert np.ptp(mixed) < 1e-9 and abs(mixed[0] - mean) > 1e-3


@pytest.mark.parametrize("name", ("chain", "tree", "star"))
@pytest.mark.parametrize("size", (1, 2, 3, 4, 9, 16))
def test_relay_sum_is_exact_after_the_diameter_and_not_before(name, size):
    plan = tree(name, size)

    def program(comm):
        state, history = RelaySum(start=-100.0), []
        for t in range(plan.diameter() + 2):
            buffer = start(comm.rank)
            state = relay_sum(comm, buffer, plan, t, state)
            history.append(np.append(buffer, state.count))
        return history

    found = np.array(sim.run(program, size)).swapaxes(0, 1)
    mean = np.append(starts(size).mean(0), size)
    exact = [np.allclose(now, mean, atol=1e-12) for now in found]
    first = max(plan.diameter(), 1)
    assert exact == [t + 1 >= first for t in range(len(exact))]


def test_relay_sum_counts_the_ranks_within_reach_and_fills_in_the_start():
    """In round t a rank of a chain has the values of ranks up to t + 1 places away."""
    plan = tree("chain", 6)

    def program(comm):
        state, history = RelaySum(start=10.0), []
        for t in range(4):
            buffer = start(comm.rank)
            state = relay_sum(comm, buffer, plan, t, state)
            history.append([buffer[0], state.count])
        return history

    found = np.array(sim.run(program, 6)).swapaxes(0, 1)
    for t in range(4):
        for rank in range(6):
            near = [r for r in range(6) if abs(r - rank) <= t + 1]
            total = sum(start(r)[0] for r in near) + 10.0 * (6 - len(near))
            assert found[t, rank] == pytest.approx([total / 6, len(near)])


@pytest.mark.parametrize("faults", FAULTS)
@pytest.mark.parametrize("name", ("chain", "tree", "star"))
def test_relay_sum_is_evaluated_as_it_ran_also_of_changing_values(name, faults):
    plan, state = tree(name, 9), None

    def program(comm):
        state, history = RelaySum(start=2.0), []
        for t in range(20):
            buffer = start(comm.rank) / (1 + min(t, 5))
            state = relay_sum(comm, buffer, plan, t, state, faults)
            history.append(buffer[1])
        return history

    found = np.array(sim.run(program, 9)).T
    for t in range(20):
        values = starts(9)[:, 1] / (1 + min(t, 5))
        state = evaluated_relay.relay_sum(values, plan, t, state, faults, start=2.0)
        assert np.allclose(found[t], values, rtol=1e-12)
    if not faults.absence and not faults.delay and not faults.loss:
        assert np.allclose(found[-1], starts(9)[:, 1].mean() / 6)


GROUPS = ("complete", "grid:4x3", "grid:5x4", "random_groups:4", "independent_groups:3")


@pytest.mark.parametrize("faults", FAULTS)
@pytest.mark.parametrize("name", GROUPS)
def test_group_averages_are_evaluated_as_they_ran_and_keep_the_mean(name, faults):
    plan, values = topology(name, 12, seed=3), starts(12)[:, 1].copy()
    for t, found in enumerate(ran(group_average, plan, 12, 6, faults)):
        before = values.copy()
        evaluated_groups.group_average(values, plan, t, None, faults)
        assert np.allclose(found[:, 1], values, rtol=1e-13)
        assert found[:, 1].mean() == pytest.approx(starts(12)[:, 1].mean())
        if faults == NO_FAULTS:
            assert np.allclose(values, matrix(plan, t) @ before)
            for rank in range(12):  # equal bits in a group
                group = plan.groups(t).members(rank)
                assert (found[group] == found[rank]).all()


def test_a_grid_has_the_mean_after_one_round_per_axis():
    found = ran(group_average, topology("grid:2x3x2", 12), 12, 3)
    assert not np.allclose(found[1], starts(12).mean(0))
    assert np.allclose(found[2], starts(12).mean(0))


@pytest.mark.parametrize(
    "protocol, plan, words",
    [
        (gossip, topology("one_peer_exponential", 8), LENGTH),
        (gossip, topology("exponential", 8), 3 * LENGTH),
        (push_sum, topology("one_peer_exponential", 8), LENGTH + 1),
        (group_average, topology("grid:2x2x2", 8), LENGTH),
        (relay_sum, tree("star", 8), (LENGTH + 1) * 14 / 8),
    ],
)
def test_a_round_sends_the_words_of_its_docstring(protocol, plan, words):
    def program(comm):
        comm = Metered(comm)
        protocol(comm, start(comm.rank), plan, 0)
        return comm.bytes_sent / 8

    assert np.mean(sim.run(program, 8)) == words


@pytest.mark.parametrize("protocol", (gossip, push_sum, group_average))
def test_single_precision_stays_single_and_integers_are_refused(protocol):
    plan = topology("complete", 4)
    found = ran(protocol, plan, 4, 1, dtype=np.float32)
    assert found.dtype == np.float32
    assert np.allclose(found[0], starts(4).mean(0), rtol=1e-6)
    with pytest.raises(BadInput, match="floating-point"):
        ran(protocol, plan, 4, 1, dtype=int)


def test_groups_are_needed_for_a_group_average():
    with pytest.raises(BadInput, match="expected a topology of groups"):
        ran(group_average, topology("ring", 4), 4, 1)
