"""Chains of replicas: deaths lose no acknowledged update, and repeat none."""

import numpy as np
import pytest

from dml import sim
from dml.sim.events import Death
from dml.types import RankFailed
from dml.wire.comm import Metered
from dml.wire.comm.surviving import Surviving, with_survivors
from dml.wire.costs.server import INLINE
from dml.wire.plans.chain import Chain, chains
from dml.wire.plans.partition import partition
from dml.wire.server.chain import Replica
from dml.wire.server.client import Client
from dml.wire.server.consistency import Choice, consistency
from dml.wire.server.envelope import UPDATE, Envelope
from dml.wire.server.port import Port
from dml.wire.server.replicated import Replicated
from dml.wire.server.server import Server
from tests.wire.server.served import Adding

WORKERS, UPDATES = 3, 20
# A gradient adds its own power of two: the table shows which ones were applied. Rows
# have 24 bits, each used once; a second application would carry into the next bit.
NETWORK = sim.Uniform(1e-5, 1e-9, 0)
BSP, ASYNC = (consistency(name, Choice(), WORKERS) for name in ("bsp", "async"))


def program(comm, chain, rule=ASYNC, width=1, updates=UPDATES):
    """Push powers of two; return the table, and what each rank ended with."""
    comm = Surviving(Metered(comm))
    split, rows = partition(WORKERS, 1), slice(0, WORKERS)
    client = None
    if comm.rank in chain.members:
        port = Port(comm)
        shard = Adding(np.zeros((WORKERS, width), np.float32))
        server = Server(port, shard, WORKERS, rule)
        replica = Replica(comm, server, port, chain)
        replica.serve()
        table = server.shard.values if replica.ready else None
        ended = [(entry.worker, entry.clock) for entry in server.log]
    else:
        end = Replicated(comm, [chain], 64 + 8 * WORKERS * (1 + width))
        client = Client(end, split, width, [chain.members[0]], known=2)
        for clock in range(updates):
            table = client.pull(rows, clock if rule is BSP else -1)
            comm.platform.compute(1e-5 * (1 + (comm.rank + clock) % 3))
            grads = np.zeros((WORKERS, width), np.float32)
            grads[comm.rank] = 2.0**clock
            client.push(rows, grads, 1 / WORKERS, ends_clock=True)
        client.end()
        table, ended = None, len(end.links[chain.members[0]].times)
        end.leave()
    clock = comm.Wtime()
    found = with_survivors(comm, lambda living, ranks: (ranks, table))
    return found, ended, clock


def run(chain, *deaths, order=0, **options):
    size = max(chain.members) + 1
    events = [Death(*death) for death in deaths]
    call = lambda comm: program(comm, chain, **options)  # noqa: E731
    return sim.run(call, size, NETWORK, order, events=events)


def check(results, chain, dead, updates=UPDATES):
    """Check that living replicas have every update of living workers once."""
    assert {rank for rank, result in enumerate(results) if result is None} <= dead
    complete = 2.0**updates - 1
    tables = [results[rank] and results[rank][0][1] for rank in chain.members]
    tables = [table for table in tables if table is not None]
    assert tables
    for table in tables:
        for worker in range(WORKERS):
            if worker in dead:  # the first updates
                assert np.log2(1 + table[worker, 0]) in range(updates + 1)
            else:
                assert (table[worker] == complete).all()
    for worker in set(range(WORKERS)) - dead:
        # pulls, pushes, long values and the end
        assert results[worker][1] == (2 + (table.nbytes > INLINE)) * updates + 1


@pytest.mark.parametrize("rule", (BSP, ASYNC), ids=("bsp", "async"))
@pytest.mark.parametrize("replicas", (2, 3))
def test_deaths_of_head_middle_and_tail_lose_no_update(replicas, rule):
    chain = Chain(tuple(range(WORKERS, WORKERS + replicas)), replicas)
    end = run(chain, rule=rule)[0][2]
    draws = np.random.default_rng(replicas)
    for seed in range(5):
        for member in chain.members:
            deaths = [(member, draws.uniform(0, end))]
            results = run(chain, *deaths, order=seed, rule=rule)
            check(results, chain, {member})


@pytest.mark.parametrize("width", (1, 20_000), ids=("short", "long"))
def test_spares_take_over_from_two_or_three_dead_replicas(width):
    members, updates = tuple(range(WORKERS, WORKERS + 5)), 8
    chain = Chain(members, 2)
    more = {"width": width, "updates": updates}
    end = run(chain, **more)[0][2]
    draws = np.random.default_rng(1)
    for seed in range(10):
        dying = [3, 4] if seed % 2 else [3, 4, 5]
        times = np.sort(draws.uniform(0, end, len(dying)))
        times += end * np.arange(len(dying)) / 2  # time to take over
        order = draws.permutation(dying).tolist()
        results = run(chain, *zip(order, times, strict=True), order=seed, **more)
        check(results, chain, set(dying), updates)


def test_the_death_of_a_middle_keeps_the_order_of_long_messages():
    chain, more = Chain((3, 4, 5), 3), {"width": 20_000, "updates": 6}
    end = run(chain, **more)[0][2]
    draws = np.random.default_rng(5)
    for seed in range(10):
        results = run(chain, (4, draws.uniform(0, end)), order=seed, **more)
        check(results, chain, {4}, 6)
        assert results[3][1] == results[5][1]  # the log of head and tail


def test_workers_and_replicas_die_together():
    chain = Chain((3, 4, 5, 6), 3)
    for rule in (BSP, ASYNC):
        end = run(chain, rule=rule)[0][2]
        draws = np.random.default_rng(2)
        for seed in range(10):
            deaths = [(int(draws.choice(3)), draws.uniform(0, end))]
            deaths += [(int(draws.choice([3, 4, 5])), draws.uniform(0, end))]
            results = run(chain, *deaths, order=seed, rule=rule)
            check(results, chain, {rank for rank, _ in deaths})


def test_the_death_of_all_replicas_ends_the_run():
    chain = Chain((3, 4, 5), 2)
    with pytest.raises(RankFailed, match="died|replicas"):
        run(chain, (3, 2e-4), (4, 2e-4))


def test_the_chain_follows_from_the_dead_ranks():
    first, second = chains(3, 2, 2, 1)
    assert first == Chain((3, 4, 5), 2) and second == Chain((6, 7, 8), 2)
    assert first.living(()) == (3, 4) and first.living({3}) == (4, 5)
    assert first.head({3}) == 4 and first.is_tail(5, {3}) and not first.is_tail(5, ())
    assert first.predecessor(5, {4}) == 3 and first.predecessor(5, ()) is None
    assert first.successor(3, {4}) == 5 and first.successor(5, ()) is None
    assert first.living({3, 4, 5}) == () and first.head({3, 4, 5}) is None
    assert first.is_spare(5) and not first.is_spare(4)


def test_a_replica_takes_the_next_message_in_the_order_of_the_head_only():
    third = Envelope(UPDATE, worker=0, number=3, position=7)
    assert third.follows(7, 2, is_head=False)
    assert not third.follows(6, 2, is_head=False)  # a message of another worker is lost
    assert not third.follows(7, 1, is_head=False)
    assert third.follows(9, 2, is_head=True) and not third.follows(9, 3, is_head=True)
