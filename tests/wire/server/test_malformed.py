"""Malformed messages: refused with the name of their rank; others are served on."""

import numpy as np
import pytest

from dml.strategies.server.report import describe_refusals
from dml.types import TOO_LONG, WITHDRAWN, BadInput
from dml.wire.comm.tags import Tag
from dml.wire.server.consistency import Choice, consistency
from dml.wire.server.header import (
    BITS,
    CLOCK,
    END,
    FORMAT,
    KEYS,
    NBYTES,
    PULL,
    PUSH,
    SECOND,
    SLOT,
)
from dml.wire.server.server import Server
from dml.wire.server.slots import Channel, Slots
from tests.wire.server.served import (
    ASYNC,
    Adding,
    finish,
    replicated,
    run_servers,
)

ROWS, WIDTH, WORKERS = 8, 2, 3
EVIL = WORKERS - 1  # the worker whose messages are malformed


def message(
    kind, rows=0, start=0, clock=0, acknowledged=(0, 0, 0), weight=0.5, body=b"", run=0
):
    head = FORMAT.pack(kind, rows, start, clock, *acknowledged, weight, 0.0, run)
    return np.frombuffer(head.ljust(NBYTES, b"\0") + body, np.uint8).copy()


def floats(count):
    return np.ones(count, np.float32).tobytes()


def keys(*rows):
    return np.array([*rows, *[0] * (len(rows) % 2)], np.int32).tobytes()


MALFORMED = {
    "short": np.zeros(9, np.uint8),
    "empty": np.zeros(0, np.uint8),
    "no kind": message(0),
    "unknown kind": message(1 << 12),
    "pull and push": message(PULL | PUSH, 1, 0),
    "negative rows": message(PULL, -1),
    "too many rows": message(PULL, ROWS + 1),
    "range past the end": message(PULL, 3, ROWS - 2),
    "huge start": message(PULL, 1, 1 << 40),
    "unknown list": message(PULL, 1, -6),
    "huge list number": message(PULL | KEYS, 1, -(1 << 40), body=keys(0)),
    "list of another length": message(PULL, 2, -1),
    "key past the end": message(PULL | KEYS, 2, -1, body=keys(0, ROWS)),
    "negative key": message(PULL | KEYS, 2, -1, body=keys(0, -3)),
    "one key too many": message(PULL | KEYS, ROWS + 1, -1, body=keys(*range(8), 0)),
    "keys cut off": message(PUSH | KEYS, 4, -1, body=keys(1, 2)),
    "keys missing": message(PULL | KEYS, 4, -1),
    "values missing": message(PUSH, 2, 0, body=floats(3)),
    "values too many": message(PUSH, 2, 0, body=floats(5)),
    "mask without values": message(PUSH | BITS, 2, 0, body=b"\xff" * 8),
    "pull with values": message(PULL, 1, 0, body=floats(2)),
    "pull with a mask": message(PULL | BITS, 2, 0, body=bytes(8)),
    "clock with keys": message(CLOCK | KEYS, 1, -1, body=keys(0)),
    "keys of a range": message(PUSH | KEYS, 1, 0, body=keys(0) + floats(2)),
    "mask cut off": message(PUSH | BITS, 2, 0),
    "push and end": message(PUSH | END, 1, 0, body=floats(2)),
    "second slot without a slot": message(PUSH | SECOND, 1, 0, body=floats(2)),
    "pull to a slot without memory": message(PULL | KEYS | SLOT, 1, -1, body=keys(0)),
    "list number past the last": message(PULL | KEYS, 1, -65, body=keys(0)),
    "pull of a negative clock": message(PULL, 1, 0, clock=-2),
    "clock skipped": message(PUSH | CLOCK, 1, 0, clock=1, body=floats(2)),
    "end of a later clock": message(END, clock=1),
    "slot without memory": message(PUSH | SLOT, 2, 0),
    "second slot": message(PUSH | SLOT | SECOND, 2, 0),
    "clock backwards": message(PUSH | CLOCK, 1, 0, clock=-1, body=floats(2)),
    "clock of eternity": message(CLOCK, clock=1 << 60),
    "version of the future": message(CLOCK, acknowledged=(99, 0, 0)),
    "negative version": message(CLOCK, acknowledged=(-1, 0, 0)),
    "replies never sent": message(CLOCK, acknowledged=(0, 3, 0)),
    "changes never sent": message(CLOCK, acknowledged=(0, 0, 3)),
    "negative replies": message(CLOCK, acknowledged=(0, -1, 0)),
    "NaN weight": message(PUSH, 1, 0, weight=np.nan, body=floats(2)),
    "infinite weight": message(PUSH, 1, 0, weight=np.inf, body=floats(2)),
    "negative weight": message(PUSH, 1, 0, weight=-1.0, body=floats(2)),
}


class Never:
    """A receive that has no message."""

    def Test(self, status=None):
        return False

    def Cancel(self):
        pass

    def Wait(self, status):
        status.count = WITHDRAWN


class Silent:
    """A communicator of one server, whose sends are dropped."""

    rank = 0

    def Isend(self, buffer, dest, tag=0):
        return Never()

    def Irecv(self, buffer, source, tag):
        return Never()

    def Waitall(self, requests):
        pass

    def Wtime(self):
        return 0.0


def lone_server(workers=WORKERS, rule=ASYNC, **more):
    shard = Adding(np.zeros((ROWS, WIDTH), np.float32))
    return Server(Silent(), shard, workers, rule, **more)


def test_valid_messages_are_accepted():
    server, one = lone_server(), {"acknowledged": (1, 1, 0)}
    valid = [
        message(PUSH, 2, 1, body=floats(4)),
        message(PULL | KEYS, 2, -64, clock=-1, body=keys(0, 7)),
        message(PUSH, 2, -64, body=floats(4), **one),
        message(PUSH | BITS | CLOCK, 2, 0, body=b"\x80" + bytes(7) + floats(2), **one),
        message(CLOCK, clock=1, **one),
        message(END, clock=2, **one),
    ]
    for each in valid:
        server.handle(0, each, len(each))
    assert not server.refused
    assert server.shard.values[:, 0].tolist() == [2, 1, 1, 0, 0, 0, 0, 1]


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_message_changes_nothing_and_is_refused_by_rank(name):
    server, bad = lone_server(), MALFORMED[name]
    server.handle(EVIL, bad, len(bad))
    assert list(server.refused) == [EVIL]
    assert server.refused[EVIL].messages == 1 and server.refused[EVIL].reason
    assert not server.shard.values.any() and server.version == 0
    assert not server.pushes.lists[EVIL] or "slot" in name  # its keys are valid
    good = message(PUSH, 1, 0, body=floats(2))
    server.handle(EVIL, good, len(good))  # from now on refused
    assert server.version == 0 and server.refused[EVIL].messages == 2
    server.handle(0, good, len(good))
    assert server.shard.values.sum() == 2


@pytest.mark.parametrize("sender", [WORKERS, WORKERS + 5])
def test_a_rank_that_is_no_worker_is_refused(sender):
    server, good = lone_server(), message(PUSH, 1, 0, body=floats(2))
    server.handle(sender, good, len(good))
    assert list(server.refused) == [sender] and not server.shard.values.any()
    assert len(server.active) == WORKERS


def test_messages_after_the_last_one_and_cut_ones_are_refused():
    server = lone_server()
    for rank, nbytes in ((0, NBYTES), (0, NBYTES), (1, TOO_LONG)):
        server.handle(rank, message(END), nbytes)
    assert server.refused[0].reason == "a message after the last one"
    assert server.refused[1].reason == "too many bytes"


def test_ten_thousand_random_messages_never_raise_or_reach_the_rows():
    draws = np.random.default_rng(0)
    server = lone_server(workers=10_001)
    kinds = [message(PUSH, 2, 0, body=floats(4)), *MALFORMED.values()]
    good, expected = message(PUSH, 1, 3, body=floats(2)), 0
    for rank in range(1, 10_001):
        bad = kinds[rank % len(kinds)].copy()
        if rank % 3 and len(bad):  # flip some bits of the head
            at = draws.integers(0, min(len(bad), NBYTES), draws.integers(1, 4))
            bad[at] ^= draws.integers(1, 256, len(at), np.uint8)
        if rank % 7 == 0:
            bad = draws.integers(0, 256, draws.integers(0, 200), np.uint8)
        before = server.shard.values.copy()
        padded = np.zeros(max(len(bad), len(server.inbox.buffer)), np.uint8)
        padded[: len(bad)] = bad
        server.handle(rank, padded, len(bad))
        if rank in server.refused:
            assert np.array_equal(server.shard.values, before)
        else:
            expected += float((server.shard.values - before).sum())
        if rank % 100 == 0:  # the honest worker
            server.handle(0, good, len(good))
            expected += 2
    assert len(server.refused) > 9_000
    assert 0 not in server.refused
    finite = np.nan_to_num(server.shard.values)
    assert finite.sum() == pytest.approx(expected, rel=1e-3)


def test_gradients_before_the_refusal_are_kept_and_clocks_go_on():
    rule = consistency("bsp", Choice(), WORKERS)

    def work(client, comm):
        rows = np.array([comm.rank], np.int32)
        client.push(rows, np.ones((1, WIDTH), np.float32), 0.5)
        if comm.rank == EVIL:
            comm.Send(MALFORMED["no kind"], WORKERS, Tag.SERVER)
            comm.Recv(np.zeros(4, np.int64), WORKERS, Tag.VALUES)
            client.end = lambda: None
            return None
        client.end_clock()
        return client.pull(slice(0, ROWS), 1)

    (rows, *_), (server,) = run_servers(work, WORKERS, rule=rule, width=WIDTH)
    assert rows[:, 0].tolist() == [1, 1, 1, 0, 0, 0, 0, 0]
    assert server.clock == 1


@pytest.mark.parametrize("pulled", [slice(0, 3), np.array([1, 4], np.int32)])
def test_a_refused_client_receives_the_reason_and_waits_for_nothing(pulled):
    def work(client, comm):
        if comm.rank != EVIL:
            comm.platform.compute(5)
            return None
        comm.Send(MALFORMED["no kind"], WORKERS, Tag.SERVER)
        with pytest.raises(
            BadInput, match="rank 2: expected rows from server 0, got a"
        ):
            client.pull(pulled)
        client.end = lambda: None
        return "refused"

    results, _ = run_servers(work, WORKERS, width=WIDTH)
    assert results[EVIL] == "refused"


@pytest.mark.parametrize("is_late", (False, True))
def test_a_refused_client_of_pushed_rows_waits_for_nothing(is_late):
    rule = consistency("essp", Choice(staleness=0), WORKERS)

    def work(client, comm):
        client.end_clock()
        if comm.rank != EVIL:
            comm.platform.compute(5)
            finish(client, replicated(client, rule, ROWS, WIDTH))
            return
        replica = replicated(client, rule, ROWS, WIDTH)
        rows = slice(0, 3)
        replica.finish_read(replica.begin_read(rows, 0), rows, 0)
        reading = replica.begin_read(rows, 9) if is_late else None
        comm.Send(MALFORMED["no kind"], WORKERS, Tag.SERVER)
        with pytest.raises(BadInput, match="rank 2: expected rows from server 0"):
            replica.finish_read(reading or replica.begin_read(rows, 9), rows, 9)
        comm.Recv(np.zeros(4, np.int64), WORKERS, Tag.VALUES)
        client.end = lambda: None

    run_servers(work, WORKERS, rule=rule, width=WIDTH)


def test_clocks_that_a_refused_worker_has_ended_do_not_close_later_ones():
    rule = consistency("bsp", Choice(), WORKERS)
    for ended in (1, 2):
        server = lone_server(rule=rule)
        clocks = [message(CLOCK, clock=clock) for clock in range(3)]
        for each in [*clocks[:ended], MALFORMED["no kind"]]:
            server.handle(EVIL, each, len(each))
        for clock, each in enumerate(clocks):
            for worker in (0, 1):
                assert server.clock == clock
                server.handle(worker, each, len(each))
        assert server.clock == 3


def test_waiting_pulls_of_a_refused_worker_are_not_answered():
    server = lone_server(rule=consistency("bsp", Choice(), WORKERS))
    for each in (message(PULL, 1, 0, clock=1), MALFORMED["no kind"]):
        server.handle(EVIL, each, len(each))
    for worker in (0, 1):
        server.handle(worker, message(CLOCK), NBYTES)
    assert server.clock == 1
    assert not server.out.sent[EVIL][0]


def test_a_message_of_an_earlier_run_is_refused_and_its_rank_remains_a_worker():
    server = lone_server(run=4)
    for run in (3, 0, 4):
        each = message(PUSH, 1, 0, body=floats(2), run=run)
        server.handle(0, each, len(each))
    assert server.refused[0] == ("a message of run 3 in run 4", 2)
    assert server.shard.values.sum() == 2
    bad = message(1 << 12, run=4)
    server.handle(0, bad, len(bad))
    assert 0 not in server.active


def test_a_worker_does_not_end_before_it_has_received_its_replies():
    for before in (message(PULL, 1, 0), message(PULL, 1, 0, clock=7)):
        server = lone_server()
        for each in (before, message(END)):
            server.handle(0, each, len(each))
        assert server.refused[0].reason == "the last message before 1 replies"


def test_clocks_are_skipped_only_where_workers_may_skip_them():
    for name, is_refused in (("backup", False), ("bsp", True), ("ssp", True)):
        rule = consistency(name, Choice(backup=1, staleness=2), WORKERS)
        server, skip = lone_server(rule=rule), message(CLOCK, clock=5)
        server.handle(0, skip, len(skip))
        assert bool(server.refused) == is_refused


def slots(flag, size=16):
    memory = Slots(np.zeros(2 * (64 + 4 * size), np.uint8))
    memory.in_use[0][0] = flag
    return memory


@pytest.mark.parametrize("kind", (PUSH, PULL | KEYS))
def test_a_slot_is_read_and_written_only_while_its_worker_uses_it(kind):
    start, body = (-1, keys(0, 1)) if kind & KEYS else (0, b"")
    for slot, flag, size, is_refused in (
        (SLOT, 1, 16, False),
        (SLOT, 0, 16, True),  # not in use
        (SLOT, 7, 16, True),
        (SLOT | SECOND, 1, 16, True),  # the other one is in use
        (SLOT, 1, 3, True),  # shorter than the values
    ):
        channel = Channel(slots(flag, size), slots(flag, size))
        server = lone_server(channels=[channel] * WORKERS)
        each = message(kind | slot, 2, start, body=body)
        server.handle(0, each, len(each))
        assert bool(server.refused) == is_refused


def test_a_summary_names_the_refused_rank_and_the_first_reason():
    server = lone_server()
    for bad in (MALFORMED["negative rows"], MALFORMED["empty"]):
        server.handle(EVIL, bad, len(bad))
    assert describe_refusals(7, server.refused) == (
        "rank 7 refused 2 messages of rank 2, the first for -1 rows from 0 of 8\n"
    )
