"""Rounds evaluated for all volunteers against the protocol on virtual ranks."""

import numpy as np
import pytest

from dml import sim
from dml.sim.delays import delay_distribution
from dml.sim.events import Death
from dml.sim.volunteers import means
from dml.sim.volunteers.groups import Rules, line_seats
from dml.sim.volunteers.population import Traits, population
from dml.sim.volunteers.rounds import simulate_round
from dml.wire.volunteers import Peer, Settings, average, find_group, settle

SIDES = (3, 4)
ROUNDS = 4
NETWORK = sim.Uniform(1e-3, 1e-9, 0)
BANDWIDTHS = np.random.default_rng(5).choice([0.0, 1e6, 2e6, 5e6], 12)


def start(rank):
    return np.random.default_rng(rank).standard_normal(24)


def protocol():
    """Return the members of the groups of each rank, and its values by round."""

    def key(t, peer):
        return int(line_seats(12, SIDES, t % 2)[1][peer])

    def program(comm):
        if comm.rank == 12:  # a dead rank allows unread messages
            return comm.platform.compute(1e9)
        settings = Settings(width=max(SIDES), quorum=1)
        own = BANDWIDTHS[comm.rank]
        peer = Peer(comm, 8 * 24, range(12), bandwidth=own, settings=settings)
        values, history = start(comm.rank), []
        for t in range(ROUNDS):
            comm.platform.compute(1 + 0.01 * comm.rank)
            group = find_group(peer, t, key)
            average(peer, group, values)
            settle(peer)
            history.append((group.members, values.copy()))
        peer.close()
        return history

    return sim.run(program, 13, NETWORK, events=[Death(12, 1e3)])


def test_groups_and_means_are_those_of_the_protocol_if_no_volunteer_leaves():
    rules = Rules(SIDES, delay_distribution("constant:1"), quorum=1)
    peers = population(12, Traits(), np.random.default_rng(0))
    peers.bandwidth[:] = BANDWIDTHS
    values = np.array([start(rank) for rank in range(12)])
    histories = protocol()
    for t in range(ROUNDS):
        outcome = simulate_round(peers, rules, Traits(), t, np.random.default_rng(t))
        assert outcome.included.all()
        means.average(values, outcome)
        for rank in range(12):
            members, averaged = histories[rank][t]
            same = np.flatnonzero(outcome.label == outcome.label[rank])
            assert members == tuple(same)
            assert averaged == pytest.approx(values[rank])
