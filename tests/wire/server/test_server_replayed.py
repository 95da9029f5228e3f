"""Replays of parameter servers are bit-identical, under every consistency."""

import numpy as np
import pytest

from dml import sim
from dml.wire.comm import Metered, Traced
from dml.wire.plans.partition import partition
from dml.wire.server.client import Client
from dml.wire.server.consistency import CONSISTENCIES, Choice, consistency
from dml.wire.server.replica import Replica
from dml.wire.server.server import Server
from tests.wire.comm.replays import bare, recorded, replayed
from tests.wire.server.served import Adding

WORKERS, SERVERS, ROWS, CLOCKS = 4, 2, 12, 6


class Descending(Adding):
    """A shard whose rounding depends on the order of the gradients."""

    def update(self, at, grads, share=1.0):
        self.values[at] -= np.float32(0.3) * grads


def train(comm, rule, seed):
    """Train a table towards [0, 1, 2, ...]; return this rank's rows as bytes."""
    comm, split = Metered(comm), partition(ROWS, SERVERS)
    start = np.zeros((ROWS, 2), np.float32)
    if comm.rank >= WORKERS:
        shard = Descending(start[split.rows_of(comm.rank - WORKERS)].copy())
        Server(comm, shard, WORKERS, rule).serve()
        return shard.values.tobytes()
    draws = np.random.default_rng([seed, comm.rank])
    client = Client(comm, split, 2, range(WORKERS, WORKERS + SERVERS))
    own = Descending(start) if rule.aggregation_count else None
    replica, rows = Replica(client, start, rule, own), slice(0, ROWS)
    for k in range(CLOCKS):
        replica.finish_read(replica.begin_read(rows, k), rows, k)
        comm.platform.note(int(replica.version.sum()))
        comm.platform.compute(draws.exponential())
        grads = (replica.table - np.arange(ROWS, dtype=np.float32)[:, None]) / 3
        replica.add_gradient(rows, grads, 1)
        replica.pushes += 1
        client.push(rows, grads, ends_clock=True)
    client.end()
    replica.finish()
    return replica.table.tobytes()


@pytest.mark.parametrize("around", [bare, Traced])
@pytest.mark.parametrize("name", CONSISTENCIES)
def test_a_server_s_run_is_repeated_at_other_speeds(name, around):
    rule = consistency(name, Choice(staleness=2, softsync=2), WORKERS)
    found = []

    def run(wrap, seed):
        network = sim.Uniform(alpha=1e-3 * (seed % 3))
        size = WORKERS + SERVERS
        return sim.run(lambda comm: train(wrap(comm), rule, seed), size, network)

    for seed in range(4):
        first, words = recorded(lambda wrap, s=seed: run(wrap, s), 6, around)
        assert replayed(lambda wrap, s=seed: run(wrap, s + 50), words, around) == first
        found.append(tuple(first))
    assert (len(set(found)) == 1) == (name == "bsp")  # else the order does matter
