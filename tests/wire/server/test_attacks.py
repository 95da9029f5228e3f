"""Thousands of malformed messages on the wire: honest workers get the same bits."""

import numpy as np
import pytest

from dml import sim
from dml.types import Status
from dml.wire.comm import Metered
from dml.wire.comm.tags import Tag
from dml.wire.plans.partition import partition
from dml.wire.server import header
from dml.wire.server.client import Client
from dml.wire.server.colocated import Colocated
from dml.wire.server.consistency import CONSISTENCIES, Choice, consistency
from dml.wire.server.header import CLOCK, END, NBYTES, PULL, PUSH
from dml.wire.server.server import Server
from tests.wire.server.served import Adding, replicated
from tests.wire.server.test_malformed import MALFORMED, floats, message

ROWS, WIDTH, WORKERS = 8, 2, 3
EVIL = WORKERS - 1  # the worker whose messages are malformed
SERVER = WORKERS
LONG = 1000  # seconds after which the honest workers have ended
LATER = [*MALFORMED.values()]
# valid after the messages of `valid`, or if all values follow their message
VALID_LATER = ("clock skipped", "end of a later clock", "mask without values")
NO_KIND = [(Tag.SERVER, MALFORMED["no kind"])]


def honest(client, comm):
    """Train three clocks; return all rows that were read."""
    rows, read = np.array([comm.rank, 5], np.int32), []
    for clock in range(3):
        comm.platform.compute(1 + comm.rank)
        grads = np.full((2, WIDTH), 1 + comm.rank + 10 * clock, np.float32)
        client.push(rows, grads, 0.5, ends_clock=True)
        read.append(client.pull(slice(0, ROWS)))
    client.end()
    return np.array(read)


def receive_all(comm, ranks, tags=(Tag.VALUES, Tag.CHANGED, Tag.SERVER)):
    """Receive the messages that were sent to this rank."""
    status, found = Status(), []
    for rank in ranks:
        for tag in tags:
            while comm.Iprobe(rank, tag, status):
                found.append(np.zeros(status.count, np.uint8))
                comm.Recv(found[-1], rank, tag)
    return found


def served(rule, attack, network=None):
    """Train with honest workers and one that sends the messages of `attack`.

    Return what the honest workers have read, the server, and when it ended.
    """

    def program(comm):
        comm = Metered(comm)
        if comm.rank == SERVER:
            shard = Adding(np.zeros((ROWS, WIDTH), np.float32))
            server = Server(comm, shard, WORKERS, rule)
            server.serve()
            return server, comm.Wtime()
        if comm.rank != EVIL:
            client = Client(comm, partition(ROWS, 1), WIDTH, [SERVER])
            read = honest(client, comm)
            replicated(client, rule, ROWS, WIDTH).finish()  # receives changed rows
            return read
        comm.platform.compute(2.5)
        sends = [comm.Isend(buffer, SERVER, tag) for tag, buffer in attack]
        comm.platform.compute(LONG)
        receive_all(comm, [SERVER])
        comm.Waitall(sends)
        return None

    *read, _, (server, seconds) = sim.run(program, WORKERS + 1, network)
    assert seconds < LONG  # it has waited for no message of the attacker
    return np.array(read), server


def valid(draws):
    """Return up to three valid messages that push, pull and end clocks."""
    messages = [
        message(PUSH | CLOCK, 1, int(draws.integers(ROWS)), body=floats(WIDTH)),
        message(PUSH, 1, 5, clock=1, body=floats(WIDTH)),
        message(PULL, 3, 2, clock=9),
    ]
    count = draws.integers(4)
    return [(Tag.SERVER, each) for each in messages[:count]]


def random_message(draws):
    """Return a tag and a message: a changed one of MALFORMED, or random bytes."""
    kind = draws.integers(8)
    if kind == 0:  # values that no message has announced, or announced before
        return Tag.GRADIENTS, np.zeros(draws.integers(0, 300), np.uint8)
    if kind == 1:
        return Tag.SERVER, draws.integers(0, 256, draws.integers(0, 200), np.uint8)
    if kind == 2:  # longer than the inbox of the server
        return Tag.SERVER, np.ones(draws.integers(300, 100_000), np.uint8)
    if kind == 3:
        return Tag.SERVER, message(END, clock=int(draws.integers(5)))
    bad = LATER[draws.integers(len(LATER))].copy()
    if len(bad) and kind > 4:
        at = draws.integers(0, min(len(bad), NBYTES), draws.integers(1, 4))
        bad[at] ^= draws.integers(1, 256, len(at), np.uint8)
    return Tag.SERVER, bad


@pytest.mark.parametrize("inline", (1 << 16, 4))  # 4: all values follow their message
@pytest.mark.parametrize("name", CONSISTENCIES)
def test_ten_thousand_malformed_messages_change_no_bit_of_honest_workers(
    monkeypatch, name, inline
):
    monkeypatch.setattr(header, "INLINE", inline)
    rule = consistency(name, Choice(staleness=1, backup=1, softsync=2), WORKERS)
    names, total = [name for name in MALFORMED if name not in VALID_LATER], 0
    for seed in range(4):
        draws = np.random.default_rng([seed, inline, names.index("short") + len(name)])
        before = valid(draws) if inline > 4 else []
        first = MALFORMED[names[draws.integers(len(names))]]
        later = [random_message(draws) for _ in range(220)]
        attack = [*before, (Tag.SERVER, first), *later]
        left_read, left = served(rule, [*before, *NO_KIND])
        read, server = served(rule, attack)
        assert read.tobytes() == left_read.tobytes()
        assert server.shard.values.tobytes() == left.shard.values.tobytes()
        assert set(server.refused) == {EVIL}
        sent = sum(tag == Tag.SERVER for tag, _ in attack)
        assert server.refused[EVIL].messages == sent - len(before)
        total += len(later) + 1
    assert total == 884  # times 2 · 6 consistencies: 10,608


@pytest.mark.parametrize("name", MALFORMED)
def test_each_malformed_message_is_refused_on_the_wire(name):
    rule = consistency("bsp", Choice(), WORKERS)
    read, server = served(rule, [(Tag.SERVER, MALFORMED[name])])
    assert server.refused[EVIL].messages == 1
    assert read.tobytes() == served(rule, NO_KIND)[0].tobytes()


def announce(rows=ROWS, clock=0):
    return Tag.SERVER, message(PUSH | CLOCK, rows, 0, clock=clock)


def values(count):
    return Tag.GRADIENTS, np.ones(count, np.float32)


BEFORE = "a message before the announced values"
LENGTH = "values that have not 64 bytes"
WRONG = {
    "never sent": ([announce(), (Tag.SERVER, message(END, clock=1))], BEFORE),
    "announced twice": ([announce(), announce()], BEFORE),
    "too short": ([announce(), values(15)], LENGTH),
    "too long": ([announce(), values(17)], LENGTH),
    "far too long": ([announce(), values(100_000)], LENGTH),
    "none": ([announce(), values(0)], LENGTH),
    "after a refusal": ([*NO_KIND, announce(), values(16), values(50_000)], "kind 0"),
}


@pytest.mark.parametrize("network", (None, sim.Uniform(eager=0)))
@pytest.mark.parametrize("name", ("bsp", "async", "essp", "softsync"))
@pytest.mark.parametrize("case", WRONG)
def test_values_that_are_not_those_announced_are_refused(
    monkeypatch, case, name, network
):
    monkeypatch.setattr(header, "INLINE", 4)
    rule = consistency(name, Choice(staleness=1, softsync=2), WORKERS)
    attack, expected = WRONG[case]
    read, server = served(rule, attack, network)
    assert server.refused[EVIL].reason == expected
    assert read.tobytes() == served(rule, NO_KIND, network)[0].tobytes()


@pytest.mark.parametrize("name", ("async", "softsync"))
def test_a_server_serves_others_while_announced_values_do_not_arrive(monkeypatch, name):
    """The attacker is silent for 100 s, which is no malformed message."""
    monkeypatch.setattr(header, "INLINE", 4)
    rule, ends = consistency(name, Choice(softsync=WORKERS), WORKERS), []

    def program(comm):
        comm = Metered(comm)
        if comm.rank == SERVER:
            shard = Adding(np.zeros((ROWS, WIDTH), np.float32))
            Server(comm, shard, WORKERS, rule).serve()
            return shard.values
        client = Client(comm, partition(ROWS, 1), WIDTH, [SERVER])
        if comm.rank != EVIL:
            honest(client, comm)
            ends.append(comm.Wtime())
            return None
        for tag, buffer in (announce(), values(ROWS * WIDTH)):
            comm.Send(buffer, SERVER, tag)
            comm.platform.compute(100)
        client.clock = 1
        return client.end()

    table = sim.run(program, WORKERS + 1)[-1]
    assert max(ends) < 10
    # the late values are those of the attacker, of weight ½
    assert table[7].tolist() == [2 if rule.averaged else 1] * 2


@pytest.mark.parametrize("eager", (0, 1 << 16))
def test_a_server_does_not_wait_for_replies_that_a_worker_acknowledged(eager):
    rule = consistency("async", Choice(), WORKERS)
    attack = [
        (Tag.SERVER, message(PULL, ROWS, 0)),
        (Tag.SERVER, message(CLOCK, acknowledged=(0, 1, 0))),
        (Tag.SERVER, message(PULL, ROWS, 0, acknowledged=(0, 1, 0))),
        *NO_KIND,
    ]
    read, server = served(rule, attack, sim.Uniform(eager=eager))
    assert server.refused[EVIL] == ("kind 0", 1)
    left = served(rule, NO_KIND, sim.Uniform(eager=eager))[0]
    assert read.tobytes() == left.tobytes()


def test_a_server_whose_last_worker_was_refused_leaves_no_receive_to_the_next(
    monkeypatch,
):
    monkeypatch.setattr(header, "INLINE", 4)
    rule = consistency("async", Choice(), 2)

    def program(comm):
        comm, tables = Metered(comm), []
        for _ in range(3):
            if comm.rank == 2:
                shard = Adding(np.zeros((ROWS, WIDTH), np.float32))
                Server(comm, shard, 2, rule).serve()
                tables.append(shard.values)
            elif comm.rank == 0:
                client = Client(comm, partition(ROWS, 1), WIDTH, [2])
                client.push(slice(0, ROWS), np.ones((ROWS, WIDTH), np.float32))
                client.end()
            else:
                comm.platform.compute(10)
                for tag, buffer in (announce(), values(3)):
                    comm.Send(buffer, 2, tag)
                    comm.platform.compute(10)
                receive_all(comm, [2])
            comm.Barrier()
        return tables

    for table in sim.run(program, 3)[2]:
        assert (table == 1).all()


def test_messages_of_a_rank_that_is_no_worker_are_refused_and_answered():
    def program(comm):
        comm = Metered(comm)
        shard = Adding(np.zeros((ROWS, WIDTH), np.float32))
        if comm.rank == 1:
            server = Server(comm, shard, 1, consistency("async", Choice(), 1))
            server.serve()
            return server.refused
        client = Client(comm, partition(ROWS, 1), WIDTH, [1])
        if comm.rank == 0:
            comm.platform.compute(5)
            return client.end()
        with pytest.raises(ValueError, match="rank 2: expected rows from server 0"):
            client.pull(slice(0, 2))
        return None

    _, refused, _ = sim.run(program, 3)
    assert refused[2] == ("from a rank that is no worker of this server", 1)


@pytest.mark.parametrize("inline", (1 << 16, 4))
def test_colocated_servers_refuse_a_worker_and_go_on(monkeypatch, inline):
    monkeypatch.setattr(header, "INLINE", inline)
    rule, size = consistency("bsp", Choice(), WORKERS), WORKERS
    split = partition(9, size)

    def program(comm):
        comm = Metered(comm)
        shard = Adding(np.zeros((3, WIDTH), np.float32))
        server = Server(comm, shard, size, rule)
        colocated = Colocated(comm, server)
        client = Client(comm, split, WIDTH, range(size), wait=colocated.wait)
        others, sends = [rank for rank in range(size) if rank != comm.rank], []
        if comm.rank == EVIL:
            attack = [announce(3), (Tag.SERVER, message(END)), values(50_000)]
            for rank in others:
                sends += [comm.Isend(buffer, rank, tag) for tag, buffer in attack]
            own = message(END)
            sends.append(comm.Isend(own, EVIL, Tag.SERVER))
        else:
            for clock in range(3):
                ones = np.ones((9, WIDTH), np.float32)
                client.push(slice(0, 9), ones, 0.5, ends_clock=True)
                if clock < 1:
                    colocated.poll()
            client.end()
        colocated.finish()
        server.settle()
        comm.platform.compute(LONG)
        receive_all(comm, range(size))
        return server.refused, shard.values

    results = sim.run(program, size)
    for rank, (refused, table) in enumerate(results):
        assert (table == 6).all()
        assert set(refused) == (set() if rank == EVIL else {EVIL})
