"""Values in slots of shared memory have the bits of values in messages."""

from types import SimpleNamespace

import numpy as np
import pytest

from dml import sim
from dml.wire.comm import Metered
from dml.wire.plans.partition import partition
from dml.wire.server import header
from dml.wire.server.client import Client
from dml.wire.server.consistency import Consistency
from dml.wire.server.header import SECOND, SLOT
from dml.wire.server.server import Server
from dml.wire.server.slots import HostSlots, Slots, allocate, channel_nbytes
from tests.wire.server.served import Adding

ROWS, WIDTH, WORKERS, CLOCKS = 12, 4, 3, 8
SPARSE = ("sparse", 100), ("sparse", 8)
RULES = {
    "bsp": Consistency(0, by_clock=True),
    "async": Consistency(),
    "softsync": Consistency(aggregation_count=2, averaged=True),
}


def host_slots(split, size):
    """Return slots in memory that virtual ranks share."""
    sizes = [size] * split.servers
    nbytes = sum(map(channel_nbytes, sizes))
    parts = [np.zeros(nbytes, np.uint8) for _ in range(WORKERS)]
    return HostSlots(SimpleNamespace(parts=parts), sizes)


def keys_of(kind, draws):
    if kind == "dense":
        return slice(0, ROWS)
    return draws.permutation(ROWS)[:8].astype(np.int32)


def train(rule, kind, servers, slots):
    """Return the bytes of all pulled rows and tables, and the counters of all ranks."""
    split = partition(ROWS, servers)

    def program(comm):
        comm = Metered(comm)
        if comm.rank >= WORKERS:
            index = comm.rank - WORKERS
            start = np.zeros((ROWS, WIDTH), np.float32)
            shard = Adding(start[split.rows_of(index)])
            channels = slots.of_server(index, WORKERS) if slots else ()
            server = Server(comm, shard, WORKERS, rule, channels=channels)
            while server.active:
                comm.platform.compute(1.0)
                server.handle_next()
            server.settle()
            return shard.values.tobytes(), comm.sent
        channels = slots.of_worker(comm.rank) if slots else ()
        ranks = range(WORKERS, WORKERS + servers)
        client = Client(comm, split, WIDTH, ranks, channels=channels)
        draws, pulled = np.random.default_rng(comm.rank), b""
        for clock in range(CLOCKS):
            keys = keys_of(kind, draws)
            if clock > CLOCKS // 2:  # wait for the pushes, so that slots are reused
                comm.platform.compute(20.3 * (1 + comm.rank**2) + comm.rank)
                pulled += client.pull(keys).tobytes()
            if kind != "pushes":
                first = client.begin_pull(keys, clock)
                second = client.begin_pull(keys_of(kind, draws), clock)
                third = client.begin_pull(keys, clock)
                for pull in (first, second, third):
                    pulled += client.finish_pull(pull).values.tobytes()
            has = draws.random(8) < 0.7 if kind == "mask" else None
            rows = 8 if kind != "dense" else ROWS
            rows = rows if has is None else int(has.sum())
            grads = draws.standard_normal((rows, WIDTH)).astype(np.float32)
            client.push(keys, grads, ends_clock=True, has=has)
        client.end()
        return pulled, comm.sent

    return sim.run(program, WORKERS + servers, sim.Uniform(0, 0, 0))


@pytest.mark.parametrize(
    "kind, size",  # 8 elements are rounded up to 16
    [*((kind, 100) for kind in ("dense", "mask", "pushes")), *SPARSE],
)
@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("name", RULES)
def test_slots_have_the_bits_and_counts_of_messages(
    monkeypatch, name, servers, kind, size
):
    monkeypatch.setattr(header, "INLINE", 8)
    counts = {"taken": 0, "refused": 0}
    take = Slots.take

    def counted(slots, size):
        slot = take(slots, size)
        counts["taken" if slot else "refused"] += 1
        return slot

    monkeypatch.setattr(Slots, "take", counted)
    slots, rule = host_slots(partition(ROWS, servers), size), RULES[name]
    assert train(rule, kind, servers, slots) == train(rule, kind, servers, None)
    assert counts["taken"] or (servers, size) == (1, 8)  # all values are longer
    # a third value, or values that are too long; dense replies are not in slots
    assert counts["refused"] or kind == "dense"
    for server in range(servers):
        for channel in slots.of_server(server, WORKERS):
            assert not any(flag[0] for pair in channel for flag in pair.in_use)


def test_a_slot_is_taken_until_it_is_freed():
    slots = Slots(np.zeros(2 * (64 + 64), np.uint8))
    assert (slots.size, slots.take(17)) == (16, 0)
    assert [slots.take(16) for _ in range(3)] == [SLOT, SLOT | SECOND, 0]
    slots.values(SLOT | SECOND, 3)[:] = 7
    assert not slots.values(SLOT, 3).any()
    slots.free(SLOT | SECOND)
    assert slots.take(1) == SLOT | SECOND


def test_the_slots_of_workers_servers_and_directions_do_not_overlap():
    slots = host_slots(partition(ROWS, 2), 5)
    number = 0
    for worker in range(WORKERS):
        for server in range(2):
            for pair in slots.channel(worker, server):
                for values in pair.floats:
                    number += 1
                    values[:] = number
    found = [part.view(np.float32) for part in slots.parts]
    found = np.concatenate(found)
    assert all((found == k).sum() == 16 for k in range(1, number + 1))


def test_virtual_ranks_have_no_slots():
    def program(comm):
        return allocate(Metered(comm), partition(1 << 20, 1), 1)

    assert sim.run(program, 2) == [None, None]
