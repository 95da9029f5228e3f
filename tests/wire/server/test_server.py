"""The protocol of the parameter server, by gradients whose sums are exact."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from dml import sim
from dml.wire.comm import Metered
from dml.wire.plans.partition import partition
from dml.wire.server.client import Client
from dml.wire.server.consistency import Choice, consistency
from dml.wire.server.replica import Replica
from dml.wire.server.server import Server
from tests.wire.server import served
from tests.wire.server.served import ASYNC, FREE, Adding, run_servers, table


@settings(max_examples=25)
@given(some.integers(1, 5), some.integers(1, 3), some.integers(0, 10**6))
def test_async_loses_nothing_and_applies_nothing_twice(workers, servers, seed):
    pushes, total = 8, np.zeros((8, 2), np.float32)

    def work(client, comm):
        draws = np.random.default_rng([seed, comm.rank])
        for _ in range(pushes):
            comm.platform.compute(draws.exponential())
            keys = draws.permutation(8)[: draws.integers(0, 9)].astype(np.int32)
            values = draws.integers(-9, 9, (len(keys), 2)).astype(np.float32)
            client.push(keys, values, ends_clock=bool(draws.integers(2)))
            np.add.at(total, keys, values)
            if draws.integers(2):
                client.pull(keys)

    _, found = run_servers(work, workers, servers, width=2)
    np.testing.assert_array_equal(table(found), total)
    assert [server.version for server in found] == [workers * pushes] * servers


def several_runs(count, work):
    """Run work(client, comm, replica) `count` times on two workers and one server."""
    split, rule = partition(8, 1), consistency("essp", Choice(staleness=1), 2)

    def program(comm):
        comm = Metered(comm)
        if comm.rank == 2:
            server = Server(comm, Adding(np.zeros((8, 1), np.float32)), 2, rule)
            for _ in range(count):
                server.serve()
                comm.Barrier()
            return server
        client = Client(comm, split, 1, [2])
        replica = Replica(client, np.zeros((8, 1), np.float32), rule, None)
        for _ in range(count):
            work(client, comm, replica)
            client.end()
            replica.finish()
            comm.Barrier()
        return replica.table

    return sim.run(program, 3)


def test_a_server_goes_on_where_it_ended():
    def work(client, comm, replica):
        rows = np.array([comm.rank, 5], np.int32)
        for _ in range(4):
            replica.finish_read(
                replica.begin_read(rows, client.clock), rows, client.clock
            )
            client.push(rows, np.ones((2, 1), np.float32), ends_clock=True)

    *_, server = several_runs(3, work)
    assert server.shard.values[:, 0].tolist() == [12, 12, 0, 0, 0, 24, 0, 0]
    assert (server.clock, server.version) == (12, 24)
    assert server.out.sent == [([], []), ([], [])]


def test_a_copy_is_read_anew_where_a_server_goes_on():
    """Rows that change after the end of a worker are not sent to it."""
    rows = np.array([5], np.int32)

    def work(client, comm, replica):
        replica.finish_read(replica.begin_read(rows, client.clock), rows, client.clock)
        if client.clock == 0:
            comm.platform.compute(comm.rank)
            client.push(rows, np.ones((1, 1), np.float32), ends_clock=True)

    first, second, _ = several_runs(2, work)
    assert first[5, 0] == second[5, 0] == 2


def test_no_read_is_torn():
    """Pull large rows while others push: all rows are of the version of the answer."""
    everything = slice(0, 40_000)

    def work(client, comm):
        for _ in range(6):
            comm.platform.compute(1e-6 * (1 + comm.rank))
            values = client.pull(everything)
            assert (values == client.versions[0]).all()
            client.push(everything, np.ones((40_000, 1), np.float32))

    run_servers(work, 4, rows=40_000)


def test_rows_are_copied_only_while_they_may_be_under_way(monkeypatch):
    copies = []

    class Watched(Adding):
        def __setattr__(self, name, value):
            copies.append(value)
            super().__setattr__(name, value)

        def update(self, at, grads, share=1.0):
            np.add(self.values, grads, out=self.values)

    monkeypatch.setattr(served, "Adding", Watched)
    rows, ones = slice(0, 8), np.ones((8, 1), np.float32)

    def alternates(client, comm):
        for _ in range(3):
            client.pull(rows)
            client.push(rows, ones)
        assert client.clock == 0

    def one_is_silent(client, comm):
        comm.platform.compute(comm.rank)
        if comm.rank == 0:
            client.pull(rows)
            comm.platform.compute(9)
        for _ in range(3 * comm.rank):
            client.push(rows, ones)

    run_servers(alternates, 1, network=FREE)
    assert len(copies) == 1  # a push shows that its worker has the rows
    run_servers(one_is_silent, 2, network=FREE)
    assert len(copies) == 1 + 2


def test_softsync_divides_each_gradient_by_its_own_staleness():
    choice = Choice(softsync=2, staleness_scaled=True)
    rule, draws = consistency("softsync", choice, 4), np.random.default_rng(5)
    law_of = draws.exponential(size=(4, 10))

    def work(client, comm):
        for k in range(10):
            client.pull(slice(0, 1))
            comm.platform.compute(law_of[comm.rank, k])
            grads = np.full((1, 1), 64 * (comm.rank + 1), np.float32)
            client.push(slice(0, 1), grads / 4, weight=0.25)

    _, (server,) = run_servers(work, 4, rule=rule, rows=1)
    terms = [64 * (one.worker + 1) / max(1, one.staleness) for one in server.log]
    assert max(one.staleness for one in server.log) >= 2
    # updates are means of ⌊4/2⌋ gradients
    assert server.shard.values[0, 0] == pytest.approx(sum(terms) / 2, rel=1e-6)
    assert server.version == 20


def test_an_update_has_its_share_of_a_minibatch(monkeypatch):
    """The share of a mean is 1; gradients that remain at the end are applied."""
    shares = []

    class Noting(Adding):
        def update(self, at, grads, share=1.0):
            super().update(at, grads)
            shares.append(share)

    monkeypatch.setattr(served, "Adding", Noting)

    def work(client, comm):
        for weight in (0.5, 0.25, 0.0):
            grads = np.full((1, 1), weight, np.float32)
            client.push(slice(0, 1), grads, weight)

    rule = consistency("softsync", Choice(softsync=1), 2)
    _, (server,) = run_servers(work, 2, rule=rule._replace(aggregation_count=4))
    assert server.shard.values[0, 0] == 1  # (0.5 + 0.5 + 0.25 + 0.25)/1.5, and 0
    assert (server.version, shares) == (2, [1.0, 0])
    shares.clear()
    _, (server,) = run_servers(work, 1)
    assert (server.shard.values[0, 0], shares) == (0.75, [0.5, 0.25, 0])


def test_backup_sums_the_first_of_a_clock_and_counts_the_late():
    rule = consistency("backup", Choice(backup=1), 3)

    def work(client, comm):
        clocks = []
        while client.clock < 6:
            client.pull(slice(0, 1), client.clock)
            clocks.append(client.clock)
            comm.platform.compute(5.5 if comm.rank == 2 else 1)
            grads = np.full((1, 1), 3.0 ** (comm.rank + 1), np.float32)
            client.push(slice(0, 1), grads, weight=1 / 3, ends_clock=True)
        return clocks

    found, (server,) = run_servers(work, 3, rule=rule, rows=1, network=FREE)
    assert found[0] == found[1] == [0, 1, 2, 3, 4, 5]
    # (3 + 9)/(2/3) in six updates; all gradients of the slow worker are late
    assert server.shard.values[0, 0] == pytest.approx(6 * 12 * 1.5)
    late = [one for one in server.log if one.late]
    assert {one.worker for one in late} == {2}
    assert len(late) == len(found[2])


@pytest.mark.parametrize("name", ["bsp", "backup"])
def test_who_needs_no_rows_may_be_clocks_ahead(name):
    rule = consistency(name, Choice(backup=0), 2)

    def work(client, comm):
        comm.platform.compute(comm.rank)
        for k in range(3):
            grads = np.full((1, 1), 10.0**k, np.float32)
            client.push(slice(0, 1), grads, weight=0.5, ends_clock=True)
        return client.pull(slice(0, 1), 3)[0, 0]

    found, (server,) = run_servers(work, 2, rule=rule, rows=1, network=FREE)
    assert found == [222, 222]
    assert (server.version, server.clock) == (3, 3)
    assert [(one.clock, one.worker) for one in server.log] == [
        (k, worker) for k in range(3) for worker in range(2)
    ]


def test_a_server_reports_how_many_clocks_workers_have_ended():
    reported = []

    def program(comm):
        if comm.rank == 2:
            shard = Adding(np.zeros((1, 1), np.float32))
            return Server(comm, shard, 2, ASYNC, reported.append).serve()
        client = Client(Metered(comm), partition(1, 1), 1, [2])
        for _ in range(3 - comm.rank):
            client.end_clock()
        client.end()

    sim.run(program, 3)
    assert reported == [1, 2, 3, 4, 5]


def test_a_worker_that_leaps_closes_all_that_waited_for_it():
    rule = consistency("backup", Choice(backup=1), 3)

    def work(client, comm):
        comm.platform.compute(comm.rank)
        client.clock = int(comm.rank == 1)
        for _ in range(2 - comm.rank):
            client.end_clock()
        return len(client.pull(slice(0, 1), 2))

    found, (server,) = run_servers(work, 3, rule=rule, rows=1, network=FREE)
    assert (found, server.clock) == ([1, 1, 1], 2)
