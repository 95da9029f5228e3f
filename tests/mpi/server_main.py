"""Real ranks: what agrees on virtual servers agrees on real ones."""

import numpy as np

from dml.strategies.server.workers import WorkerOptions
from dml.wire.comm import Metered
from dml.wire.plans.partition import partition
from dml.wire.server.client import Client
from dml.wire.server.consistency import Choice, Consistency
from dml.wire.server.server import Server
from tests.strategies.server.small import Descent, alone, problem, program

SHORT = "shifted_exponential:0.001,1000"
EXACT = Choice(staleness=0)


def check(comm, same, name, workers, choice=EXACT, **more):
    """Train on real ranks; on rank 0 compare with one rank, in its bits or quality."""
    dense = more.get("dense", False)
    found = program(comm, name, choice=choice, delays=SHORT, clocks=10, **more)
    if comm.rank == 0:
        wanted = alone(workers, dense, clocks=10)
        if same:
            assert found.table.tobytes() == wanted.tobytes(), (name, more)
        else:
            ours, best = (problem(dense).evaluate(t) for t in (found.table, wanted))
            assert ours["objective"] < 1.3 * best["objective"], (name, more)
        assert found.summary["gradients"] + found.summary["late"] <= 10 * workers


def servers(comm) -> None:
    """Train by every consistency, on ranks of their own and of the workers."""
    for name in ("bsp", "ssp", "essp"):
        check(comm, True, name, comm.size - 1)
        check(comm, True, name, comm.size - 2, servers=2, dense=True)
        check(comm, True, name, comm.size, servers=0, colocated=True)
    drifting = Choice(staleness=2, backup=1, softsync=2)
    prefetching = WorkerOptions(prefetch=True)
    for name in ("async", "ssp", "essp", "softsync", "backup"):
        check(comm, False, name, comm.size - 1, drifting)
        check(comm, False, name, comm.size - 1, drifting, worker_options=prefetching)
        check(comm, False, name, comm.size, drifting, colocated=True)
    large(comm)


def large(comm) -> None:
    """Pull megabytes while others push: rows belong to their version."""
    comm.Barrier()  # the run before has ended on all ranks
    rows, workers, metered = 300_000, comm.size - 1, Metered(comm)
    if comm.rank == workers:
        shard = Descent(np.zeros((rows, 1), np.float32), rate=-1)
        Server(comm, shard, workers, Consistency()).serve()
        assert (shard.values == 8 * workers).all()
        return
    client = Client(metered, partition(rows, 1), 1, [workers])
    for _ in range(8):
        values = client.pull(slice(0, rows))
        assert (values == client.versions[0]).all(), "a read was torn"
        client.push(slice(0, rows), np.ones((rows, 1), np.float32))
    client.end()
