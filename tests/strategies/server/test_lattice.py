"""Consistencies that should agree bit for bit do."""

import numpy as np
import pytest

from dml import sim
from dml.data.shards import shard
from dml.strategies.server.roles import roles
from dml.strategies.server.workers import WorkerOptions
from dml.types import BadInput
from dml.wire.collectives import ALLREDUCE
from dml.wire.server import server as servers_module
from dml.wire.server.consistency import Choice
from tests.strategies.server.small import (
    DELAYS,
    ROWS,
    WIDTH,
    Descent,
    alone,
    batches,
    problem,
    ran,
)

EXACT = {
    "bsp": ("bsp", Choice()),
    "ssp with s = 0": ("ssp", Choice(staleness=0)),
    "essp with s = 0": ("essp", Choice(staleness=0)),
}


def bits(table):
    return table.tobytes()


@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
@pytest.mark.parametrize("workers", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("servers", [1, 2, 4])
@pytest.mark.parametrize("way", EXACT)
def test_synchronous_ways_have_the_bits_of_one_rank(way, servers, workers, dense):
    name, choice = EXACT[way]
    more = {"servers": servers, "choice": choice, "dense": dense, "delays": DELAYS}
    found = ran(workers + servers, name, **more)
    assert bits(found.table) == bits(alone(workers, dense))
    assert found.summary["staleness_max"] == 0


@pytest.mark.parametrize("way", EXACT)
@pytest.mark.parametrize("size", [1, 2, 4])
def test_colocated_ranks_have_the_bits_of_one_rank(way, size):
    name, choice = EXACT[way]
    more = {"servers": 0, "colocated": True, "choice": choice, "delays": DELAYS}
    assert bits(ran(size, name, **more).table) == bits(alone(size))


def test_prefetch_changes_no_bit_of_bsp():
    found = ran(
        6, "bsp", servers=2, delays=DELAYS, worker_options=WorkerOptions(prefetch=True)
    )
    assert bits(found.table) == bits(alone(4))


def test_the_order_of_running_changes_no_bit_of_bsp():
    tables = [ran(5, "bsp", delays=DELAYS, order=k).table for k in range(3)]
    assert len({bits(table) for table in tables}) == 1


@pytest.mark.parametrize("name", ["async", "softsync", "ssp", "essp", "backup"])
def test_one_worker_alone_is_one_rank(name):
    choice = Choice(backup=0, staleness=0)
    found = ran(2, name, choice=choice, delays=DELAYS)
    assert bits(found.table) == bits(alone(1))


def test_bsp_has_the_bits_of_an_all_reduce_in_worker_order():
    workers, task = 3, problem(dense=True)

    def synchronous(comm):
        table = task.params.copy()
        for index in batches(12):
            mine = shard(index, comm.rank, comm.size)
            _, (_, grads) = task.gradient(table, task.take(mine))
            grads = grads * np.float32(len(mine) / len(index))
            ALLREDUCE["star"](comm, grads.reshape(-1))  # rank 0 adds in rank order
            Descent(table).update(slice(0, ROWS), grads)
        return table

    reduced = sim.run(synchronous, workers)[0]
    assert bits(ran(workers + 1, "bsp", dense=True).table) == bits(reduced)


def test_a_sum_in_the_order_of_arrival_is_caught(monkeypatch):
    monkeypatch.setattr(servers_module, "by_clock_and_worker", lambda push: 0)
    found = ran(6, "bsp", dense=True, delays=DELAYS)
    assert bits(found.table) != bits(alone(5, dense=True))


def test_backup_without_spares_is_bsp_up_to_rounding():
    found = ran(5, "backup", choice=Choice(backup=0), delays=DELAYS)
    np.testing.assert_allclose(found.table, alone(4), rtol=1e-4, atol=1e-3)
    assert found.summary["late"] == 0


def test_microbatches_change_the_sum_only_by_rounding():
    for colocated in (False, True):
        worker_options, size = WorkerOptions(microbatches=3), 3 if colocated else 4
        found = ran(size, "bsp", colocated=colocated, worker_options=worker_options)
        np.testing.assert_allclose(found.table, alone(3), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", ["bsp", "async", "ssp", "essp", "softsync", "backup"])
@pytest.mark.parametrize("colocated", [False, True], ids=["apart", "colocated"])
def test_every_consistency_learns_on_any_roles(name, colocated):
    more = {"servers": 2, "colocated": colocated, "delays": DELAYS}
    found = ran(5, name, clocks=150, snapshots=5, **more)
    task = problem()
    best = task.evaluate(alone(5, clocks=150))["objective"]
    assert task.evaluate(found.table)["objective"] <= 1.02 * best
    first, last = found.snapshots[0], found.snapshots[-1]
    assert (
        task.evaluate(last.values)["objective"]
        < (task.evaluate(first.values)["objective"])
    )
    assert found.table.shape == (ROWS, WIDTH)


def test_roles_refuse_what_leaves_no_worker_or_no_server():
    assert roles(8) == (6, (6, 7))
    assert roles(2) == (1, (1,))
    assert roles(3, colocated=True) == (3, (0, 1, 2))
    for size, servers, colocated in [
        (1, 0, False),
        (4, 4, False),
        (4, 9, False),
        (4, -1, False),
    ]:
        with pytest.raises(BadInput, match="servers|server"):
            roles(size, servers, colocated)
    with pytest.raises(BadInput, match="at most 3 servers"):
        roles(3, 4, colocated=True)
