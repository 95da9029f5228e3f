"""The protocol of the parameter server, by gradients whose sums are exact."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from dml import sim
from dml.sim import maxplus
from dml.sim.laws import law, seconds
from dml.types import BadInput
from dml.wire.messages import Metered
from dml.wire.messages.client import Client
from dml.wire.messages.consistency import Choice, Consistency, consistency
from dml.wire.messages.replica import Replica
from dml.wire.messages.server import Server
from dml.wire.partition import partition

FREE, ASYNC = sim.Uniform(0, 0, 0), Consistency()


class Adding:
    """A shard that adds what comes: sums of whole numbers are exact."""

    def __init__(self, values):
        self.values = values

    def update(self, at, grads, share=1.0):
        self.values[at] += grads


def ran(work, workers, servers=1, rule=ASYNC, rows=8, width=1, **more):
    """Run work(client, comm) on workers; return their results and the servers."""
    split = partition(rows, servers)
    known = more.pop("known", 64)
    network = more.pop("network", None)

    def program(comm):
        comm = Metered(comm)
        if comm.rank >= workers:
            number = split.held(comm.rank - workers)
            shard = Adding(np.zeros((rows, width), np.float32)[number].copy())
            server = Server(comm, shard, workers, rule)
            server.serve()
            return server
        ranks = range(workers, workers + servers)
        client = Client(comm, split, width, ranks, known=known)
        result = work(client, comm)
        client.end()
        return result

    found = sim.run(program, workers + servers, network, **more)
    return found[:workers], found[workers:]


def table(servers):
    return np.concatenate([server.shard.values for server in servers])


@settings(max_examples=25, deadline=None)
@given(some.integers(1, 5), some.integers(1, 3), some.integers(0, 10**6))
def test_async_loses_nothing_and_applies_nothing_twice(workers, servers, seed):
    pushes, total = 8, np.zeros((8, 2), np.float32)

    def work(client, comm):
        draws = np.random.default_rng([seed, comm.rank])
        for _ in range(pushes):
            comm.compute(draws.exponential())
            keys = draws.permutation(8)[: draws.integers(0, 9)].astype(np.int32)
            values = draws.integers(-9, 9, (len(keys), 2)).astype(np.float32)
            client.push(keys, values, ends_clock=bool(draws.integers(2)))
            np.add.at(total, keys, values)
            if draws.integers(2):
                client.pull(keys)

    _, found = ran(work, workers, servers, width=2)
    np.testing.assert_array_equal(table(found), total)
    assert [server.version for server in found] == [workers * pushes] * servers


def test_a_server_goes_on_where_it_ended():
    split, rule = partition(8, 1), consistency("essp", Choice(staleness=1), 2)

    def program(comm):
        comm = Metered(comm)
        if comm.rank == 2:
            server = Server(comm, Adding(np.zeros((8, 1), np.float32)), 2, rule)
            for _ in range(3):
                server.serve()
                comm.Barrier()
            return server
        client = Client(comm, split, 1, [2])
        replica = Replica(client, np.zeros((8, 1), np.float32), rule, None)
        for _ in range(3):
            for _ in range(4):
                rows = np.array([comm.rank, 5], np.int32)
                replica.have(replica.ask(rows, client.clock), rows, client.clock)
                client.push(rows, np.ones((2, 1), np.float32), ends_clock=True)
            client.end()
            replica.finish()
            comm.Barrier()
        return replica.table

    *_, server = sim.run(program, 3)
    assert server.shard.values[:, 0].tolist() == [12, 12, 0, 0, 0, 24, 0, 0]
    assert (server.clock, server.version) == (12, 24)
    assert server.out.sent == [([], []), ([], [])]


def test_a_copy_is_read_anew_where_a_server_goes_on():
    """What changes after a worker's end is not sent to it."""
    split, rule = partition(8, 1), consistency("essp", Choice(staleness=1), 2)

    def program(comm):
        comm, rows = Metered(comm), np.array([5], np.int32)
        if comm.rank == 2:
            server = Server(comm, Adding(np.zeros((8, 1), np.float32)), 2, rule)
            for _ in range(2):
                server.serve()
                comm.Barrier()
            return None
        client = Client(comm, split, 1, [2])
        replica = Replica(client, np.zeros((8, 1), np.float32), rule, None)
        replica.have(replica.ask(rows, 0), rows, 0)
        comm.compute(comm.rank)
        client.push(rows, np.ones((1, 1), np.float32), ends_clock=True)
        client.end()
        replica.finish()
        comm.Barrier()
        replica.have(replica.ask(rows, 1), rows, 1)
        client.end()
        replica.finish()
        comm.Barrier()
        return replica.table[5, 0]

    assert sim.run(program, 3)[:2] == [2, 2]


def torn(rows=40_000):
    """Pull large rows while others push; say whether rows belong to their version."""

    def work(client, comm):
        everything, fitting = slice(0, rows), []
        for _ in range(6):
            comm.compute(1e-6 * (1 + comm.rank))
            values = client.pull(everything)
            fitting.append(bool((values == client.versions[0]).all()))
            client.push(everything, np.ones((rows, 1), np.float32))
        return all(fitting)

    return not all(ran(work, 4, rows=rows)[0])


def test_no_read_is_torn_and_a_server_that_tears_is_caught(monkeypatch):
    assert not torn()

    class Careless(np.ndarray):
        def copy(self, order="C"):
            return self

    class Shared(Adding):
        def __init__(self, values):
            self.values = values.view(Careless)

    monkeypatch.setitem(globals(), "Adding", Shared)
    assert torn()


def test_rows_are_copied_only_while_they_may_be_under_way(monkeypatch):
    puts = []

    class Watched(Adding):
        def __setattr__(self, name, value):
            puts.append(value)
            super().__setattr__(name, value)

        def update(self, at, grads, share=1.0):
            np.add(self.values, grads, out=self.values)

    monkeypatch.setitem(globals(), "Adding", Watched)

    def alternates(client, comm):
        for _ in range(3):
            client.pull(slice(0, 8))
            client.push(slice(0, 8), np.ones((8, 1), np.float32))
        assert client.clock == 0

    def one_is_silent(client, comm):
        comm.compute(comm.rank)
        if comm.rank == 0:
            client.pull(slice(0, 8))
            comm.compute(9)
        else:
            for _ in range(3):
                client.push(slice(0, 8), np.ones((8, 1), np.float32))

    ran(alternates, 1, network=FREE)
    assert len(puts) == 1  # a push says that its worker has had the rows
    ran(one_is_silent, 2, network=FREE)
    assert len(puts) == 1 + 2


def reads(workers, clocks, rule, law_text, seed):
    """Let worker i mark [i, k] in clock k; return what each read, and when it began."""
    draws_TxP = seconds(law(law_text), seed, clocks, workers)
    rows = slice(0, workers * clocks)

    def work(client, comm):
        copy = np.zeros((rows.stop, 1), np.float32)
        replica = Replica(client, copy, rule, Adding(copy) if rule.gathers else None)
        seen, starts = [], []
        for k in range(clocks):
            replica.have(replica.ask(rows, k), rows, k)
            starts.append(comm.Wtime())
            seen.append(replica.table.reshape(workers, clocks).copy())
            comm.compute(draws_TxP[k, comm.rank])
            mark = np.zeros((rows.stop, 1), np.float32)
            mark[comm.rank * clocks + k] = 1
            replica.wrote(rows, mark, 1)
            replica.pushes += 1
            client.push(rows, mark, ends_clock=True)
        return seen, starts, replica

    def to_the_end(client, comm):
        seen, starts, replica = work(client, comm)
        client.end()
        client.end = lambda: None
        replica.finish()
        return seen, starts

    found, _ = ran(to_the_end, workers, rule=rule, rows=rows.stop, network=FREE)
    starts_TxP = np.array([starts for _, starts in found]).T
    return [seen for seen, _ in found], starts_TxP, draws_TxP


def missing(seen, staleness):
    """Return the first (reader, clock, writer, clock) that a read should have had."""
    for me, reads_of_me in enumerate(seen):
        for k, marks in enumerate(reads_of_me):
            if marks.max(initial=0) > 1:
                return me, k, "twice"
            for writer, row in enumerate(marks):
                must = k if writer == me else k - staleness
                lacking = np.flatnonzero(row[: max(0, int(must))] != 1)
                if len(lacking):
                    return me, k, writer, lacking[0]
    return None


LAWS = ["shifted_exponential:1,1", "pareto:1,1.5*1,1,0.5", "constant:1*1,2,3"]


@settings(max_examples=25, deadline=None)
@given(
    some.sampled_from(["ssp", "essp"]),
    some.integers(0, 4),
    some.integers(1, 5),
    some.sampled_from(LAWS),
    some.integers(0, 10**6),
)
def test_bounded_reads_have_all_that_they_must(name, s, workers, law_text, seed):
    rule = consistency(name, Choice(staleness=s), workers)
    seen, starts_TxP, draws_TxP = reads(workers, 9, rule, law_text, seed)
    assert missing(seen, s) is None
    np.testing.assert_allclose(starts_TxP, maxplus.ssp(draws_TxP, s), rtol=1e-12)


def test_a_row_is_read_anew_only_when_its_bound_asks_for_it():
    rule, rows = consistency("ssp", Choice(staleness=2), 1), slice(0, 1)

    def work(client, comm):
        copy, kept = np.zeros((2, 1), np.float32), []
        replica = Replica(client, copy, rule, Adding(copy))
        for k in range(12):
            replica.have(replica.ask(rows, k), rows, k)
            kept.append((client.rows_pulled, len(replica.owned)))
            replica.wrote(rows, np.ones((1, 1), np.float32), 1)
            replica.pushes += 1
            client.push(rows, np.ones((1, 1), np.float32), ends_clock=True)
        return kept, comm.bytes_sent

    (((kept, sent),), _) = ran(work, 1, rule=rule, rows=2)
    assert kept == [(1 + k // 3, k % 3) for k in range(12)]
    (((also, more),), _) = ran(work, 1, 2, rule=rule, rows=2)
    assert also == kept
    assert more - sent == 12 * 64  # pushes carry a clock to all servers, pulls do not


def test_a_gradient_is_as_stale_as_the_oldest_row_that_it_is_of():
    rule = consistency("ssp", Choice(staleness=9), 1)

    def work(client, comm):
        copy = np.zeros((2, 1), np.float32)
        replica = Replica(client, copy, rule, Adding(copy))
        for k, row in enumerate([0, 1, 0, 1]):
            rows = np.array([row], np.int32)
            replica.have(replica.ask(rows, k), rows, k)
            client.push(rows, np.ones((1, 1), np.float32), ends_clock=True)

    _, (server,) = ran(work, 1, rule=rule, rows=2)
    assert [one.staleness for one in server.log] == [0, 0, 2, 2]


def test_one_clock_too_stale_is_caught():
    rule = consistency("ssp", Choice(staleness=3), 4)
    seen, starts_TxP, draws_TxP = reads(4, 12, rule, LAWS[0], 0)
    assert missing(seen, 2) is not None
    assert np.abs(starts_TxP - maxplus.ssp(draws_TxP, 2)).max() > 0.1


@pytest.mark.parametrize("name", ["bsp", "async"])
def test_times_are_those_of_max_plus(name):
    rule = consistency(name, Choice(), 5)
    _, starts_TxP, draws_TxP = reads(5, 12, rule, LAWS[0], 7)
    oracle = maxplus.ssp(draws_TxP, 0 if name == "bsp" else math.inf)
    np.testing.assert_allclose(starts_TxP, oracle, rtol=1e-12)


def test_eager_servers_bring_fresher_rows_than_lazy_reads():
    def ages(name):
        rule = consistency(name, Choice(staleness=6), 4)
        seen, _, _ = reads(4, 30, rule, LAWS[0], 3)
        return np.mean(
            [k * 4 - marks.sum() for of in seen for k, marks in enumerate(of)]
        )

    assert ages("essp") < ages("ssp")


def test_an_eager_server_sends_only_what_changed_of_what_was_read():
    rule = consistency("essp", Choice(staleness=1), 2)
    reads, writes = [[0, 1], [2]], [[0, 1, 5], [1, 6]]

    def work(client, comm):
        copy = np.zeros((8, 1), np.float32)
        replica = Replica(client, copy, rule, Adding(copy))
        rows, wrote = (np.array(of[comm.rank], np.int32) for of in (reads, writes))
        for k in range(4):
            replica.have(replica.ask(rows, k), rows, k)
            comm.compute(1)
            if k == 1:
                client.push(wrote, np.ones((len(wrote), 1), np.float32))
            client.clock_ends()
        client.end()
        client.end = lambda: None
        replica.finish()

    _, (server,) = ran(work, 2, rule=rule, network=FREE)
    heads = 2 + 7 + 2  # before answers, changes (who has ended has none), the end
    answers, changes = 4 * (2 + 1), 2 * (4 + 4)  # rows; rows and their numbers
    assert server.comm.bytes_sent == 32 * heads + answers + changes


def test_softsync_divides_each_gradient_by_its_own_staleness():
    choice = Choice(softsync=2, damped=True)
    rule, draws = consistency("softsync", choice, 4), np.random.default_rng(5)
    law_of = draws.exponential(size=(4, 10))

    def work(client, comm):
        for k in range(10):
            client.pull(slice(0, 1))
            comm.compute(law_of[comm.rank, k])
            grads = np.full((1, 1), 64 * (comm.rank + 1), np.float32)
            client.push(slice(0, 1), grads / 4, weight=0.25)

    _, (server,) = ran(work, 4, rule=rule, rows=1)
    total, groups = 0.0, [server.log[i : i + 2] for i in range(0, 40, 2)]
    for group in groups:  # ⌊4/2⌋ gradients an update
        by_rate = [64 * (one.worker + 1) / max(1, one.staleness) for one in group]
        total += np.mean(by_rate)
    assert max(one.staleness for one in server.log) >= 2
    assert server.shard.values[0, 0] == pytest.approx(total, rel=1e-6)
    assert server.version == 20


def test_an_update_says_what_share_of_a_minibatch_it_has(monkeypatch):
    """A mean is a whole one; what is left at the end is not lost."""
    shares = []

    class Noting(Adding):
        def update(self, at, grads, share=1.0):
            super().update(at, grads)
            shares.append(share)

    monkeypatch.setitem(globals(), "Adding", Noting)

    def work(client, comm):
        for weight in (0.5, 0.25, 0.0):
            grads = np.full((1, 1), weight, np.float32)
            client.push(slice(0, 1), grads, weight)

    choice = Choice(softsync=1)
    _, (server,) = ran(
        work, 2, rule=consistency("softsync", choice, 2)._replace(gathers=4)
    )
    assert server.shard.values[0, 0] == 1  # (0.5 + 0.5 + 0.25 + 0.25)/1.5, and 0
    assert (server.version, shares) == (2, [1.0, 0])
    shares.clear()
    _, (server,) = ran(work, 1)
    assert (server.shard.values[0, 0], shares) == (0.75, [0.5, 0.25, 0])


def test_backup_sums_the_first_of_a_clock_and_counts_the_late():
    rule = consistency("backup", Choice(backup=1), 3)

    def work(client, comm):
        clocks = []
        while client.clock < 6:
            client.pull(slice(0, 1), client.clock)
            clocks.append(client.clock)
            comm.compute(5.5 if comm.rank == 2 else 1)
            grads = np.full((1, 1), 3.0 ** (comm.rank + 1), np.float32)
            client.push(slice(0, 1), grads, weight=1 / 3, ends_clock=True)
        return clocks

    found, (server,) = ran(work, 3, rule=rule, rows=1, network=FREE)
    assert found[0] == found[1] == [0, 1, 2, 3, 4, 5]
    # the slow one never counts: (3 + 9)/(2/3) six times, and its gradients are late
    assert server.shard.values[0, 0] == pytest.approx(6 * 12 * 1.5)
    late = [one for one in server.log if one.late]
    assert {one.worker for one in late} == {2}
    assert len(late) == len(found[2])


@pytest.mark.parametrize("name", ["bsp", "backup"])
def test_who_needs_no_rows_may_be_clocks_ahead(name):
    rule = consistency(name, Choice(backup=0), 2)

    def work(client, comm):
        comm.compute(comm.rank)
        for k in range(3):
            grads = np.full((1, 1), 10.0**k, np.float32)
            client.push(slice(0, 1), grads, weight=0.5, ends_clock=True)
        return client.pull(slice(0, 1), 3)[0, 0]

    found, (server,) = ran(work, 2, rule=rule, rows=1, network=FREE)
    assert found == [222, 222]
    assert (server.version, server.clock) == (3, 3)
    assert [(one.clock, one.worker) for one in server.log] == [
        (k, worker) for k in range(3) for worker in range(2)
    ]


def test_a_server_tells_how_many_clocks_workers_have_ended():
    told = []

    def program(comm):
        if comm.rank == 2:
            shard = Adding(np.zeros((1, 1), np.float32))
            Server(comm, shard, 2, ASYNC, told.append).serve()
            return
        client = Client(Metered(comm), partition(1, 1), 1, [2])
        for _ in range(3 - comm.rank):
            client.clock_ends()
        client.end()

    sim.run(program, 3)
    assert told == [1, 2, 3, 4, 5]


def test_a_worker_that_leaps_closes_all_that_waited_for_it():
    rule = consistency("backup", Choice(backup=1), 3)

    def work(client, comm):
        comm.compute(comm.rank)
        if comm.rank == 0:
            client.clock_ends()
            client.clock_ends()
        elif comm.rank == 1:
            client.clock = 1
            client.clock_ends()
        return len(client.pull(slice(0, 1), 2))

    found, (server,) = ran(work, 3, rule=rule, rows=1, network=FREE)
    assert (found, server.clock) == ([1, 1, 1], 2)


def test_known_keys_are_not_sent_again():
    def work(client, comm):
        draws = np.random.default_rng(0)
        lists = [draws.permutation(50)[:20].astype(np.int32) for _ in range(3)]
        for k in range(30):
            keys = lists[k % 3]
            client.pull(keys)
            client.push(keys, np.full((20, 2), k, np.float32))
        return client.mail.keys_sent, client.mail.keys_known, comm.bytes_sent

    results = {}
    for known in (0, 1, 2, 3, 64):
        ((counts,), servers) = ran(work, 1, 2, rows=50, width=2, known=known)
        results[known] = counts, table(servers).tobytes()
    assert len({bits for _, bits in results.values()}) == 1
    asked = 30 * 2 * 20  # keys of pulls and pushes
    assert results[0][0][:2] == (asked, 0)
    assert results[1][0][:2] == (asked // 2, asked // 2)  # a push knows its pull's
    assert results[3][0][:2] == (3 * 20, asked - 3 * 20)
    assert results[3][0][2] < results[1][0][2] < results[0][0][2]


@settings(max_examples=25, deadline=None)
@given(some.integers(1, 3), some.integers(1, 40), some.integers(0, 10**6))
def test_keys_without_values_cost_a_bit_each(servers, keys, seed):
    draws = np.random.default_rng(seed)
    chosen = draws.permutation(40)[:keys].astype(np.int32)
    has = draws.random(keys) < 0.4
    values = draws.integers(1, 9, (int(has.sum()), 2)).astype(np.float32)

    def work(client, comm):
        client.pull(chosen)
        before = comm.bytes_sent
        client.push(chosen, values, has=has)
        return comm.bytes_sent - before

    (sent,), found = ran(work, 1, servers, rows=40, width=2)
    total = np.zeros((40, 2), np.float32)
    total[chosen[has]] = values
    assert np.array_equal(table(found), total)
    assert sent <= servers * (64 + 8) + 8 * (keys // 64) + values.nbytes


@pytest.mark.parametrize("rows", [8, 20_000])
def test_gradients_of_any_kind_and_order_go_as_float32(rows):
    def work(client, comm):
        values = np.asfortranarray(np.arange(2.0 * rows).reshape(rows, 2))
        client.push(slice(0, rows), values)
        client.push(np.arange(rows)[::-1].astype(np.int32), values[::-1])
        return client.pull(slice(0, rows))

    ((found,), _) = ran(work, 1, 2, rows=rows, width=2)
    assert (found == 2 * np.arange(2 * rows).reshape(rows, 2)).all()


def test_aggregated_pushes_count_their_clocks():
    def work(client, comm):
        for _ in range(3):
            client.clock_ends()
            client.push(slice(0, 8), np.ones((8, 1), np.float32), ends_clock=True)
        return client.clock

    clocks, (server,) = ran(work, 2, rule=consistency("bsp", Choice(), 2))
    assert clocks == [6, 6]
    assert (server.clock, server.version) == (6, 3)
    assert (server.shard.values == 6).all()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda client: client.pull(np.array([3, 8])), "keys of 0 to 7, got 8"),
        (lambda client: client.pull(np.array([-1])), "keys of 0 to 7, got -1"),
        (lambda client: client.pull(slice(2, 9)), "keys of 0 to 7, got 8"),
        (
            lambda client: client.push(np.array([1, 2]), np.ones((3, 1), np.float32)),
            r"values of shape \(2, 1\), got \(3, 1\)",
        ),
        (
            lambda client: client.push(slice(0, 2), np.ones((2, 2), np.float32)),
            r"values of shape \(2, 1\), got \(2, 2\)",
        ),
    ],
)
def test_bad_keys_and_lengths_are_one_line(call, says):
    with pytest.raises(BadInput, match=f"rank 0: expected {says}"):
        ran(lambda client, comm: call(client), 1)


def test_consistencies_refuse_numbers_that_make_no_sense():
    for choice, name in [
        (Choice(softsync=5), "softsync"),
        (Choice(backup=4), "backup"),
        (Choice(backup=-1), "backup"),
        (Choice(staleness=-1), "staleness"),
    ]:
        with pytest.raises(BadInput, match=f"expected --{name} of"):
            consistency("ssp" if name == "staleness" else name, choice, 4)


def test_consistencies_gather_and_damp_as_their_papers_say():
    damped = Choice(staleness=0, softsync=2, damped=True)
    assert consistency("softsync", damped, 5).gathers == 2  # ⌊λ/n⌋
    assert not consistency("ssp", damped, 5).damped  # nothing is stale
    assert consistency("ssp", damped._replace(staleness=1), 5).damped
