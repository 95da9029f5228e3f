"""Training on parameter servers: a generator of Step for any rank, whatever its role.

    minibatch k ─► shard of each worker ─► gradient ─► servers ─► table ─► workers

Workers yield a Step a clock, of their own loss; a server yields one when all is over.
What happened is in the report.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dml.metrics.timer import Timer
from dml.strategies.server.report import Report
from dml.strategies.server.roles import Roles
from dml.strategies.server.workers import Habits, Parts, work
from dml.types import CountedComm, Problem, Shard, Step
from dml.wire.messages.client import Client
from dml.wire.messages.colocated import Colocated
from dml.wire.messages.consistency import Consistency
from dml.wire.messages.replica import Replica
from dml.wire.messages.server import Server
from dml.wire.once import once
from dml.wire.partition import Partition, partition

Make = Callable[[np.ndarray], Shard]  # rows -> what keeps and updates them


class Setup(NamedTuple):
    """How ranks share the work, and how far they may drift apart."""

    roles: Roles
    rule: Consistency
    make: Make  # a server's shard
    own: Make  # what moves a worker's copy by its own gradients
    habits: Habits = Habits()
    known: int = 64  # key lists that a server remembers of each worker
    snapshots: int = 0  # clocks between two copies of the table; 0: none


def server(
    problem: Problem,
    batches: Iterable[np.ndarray],
    timer: Timer,
    *,
    comm: CountedComm,
    setup: Setup,
    report: Report,
) -> Iterator[Step]:
    """Train as `serial` does, by the setup's consistency."""
    # order matters: a server of the run before must have ended before anyone speaks
    comm.Barrier()
    roles = setup.roles
    split = divided(comm, problem, len(roles.servers))
    number, works = roles.server(comm.rank), comm.rank < roles.workers
    serving = (
        served(problem, split, comm, setup, report) if number is not None else None
    )
    if not works:
        assert serving
        serving.serve()
        report.served(serving)
        yield last(serving, timer)
        return
    meanwhile: Any = colocated(serving, comm) if serving else None
    client = Client(
        comm,
        split,
        problem.start_TxD.shape[1],
        roles.servers,
        known=setup.known,
        wait=meanwhile and meanwhile.wait,
    )
    replica = copied(problem, client, setup)
    parts = Parts(problem, batches, comm.rank, roles.workers)
    poll = meanwhile and meanwhile.poll
    yield from work(parts, replica, timer, setup.habits, report.counts, poll)
    report.worked(client)
    if serving:
        meanwhile.finish()
        serving.settle()
        report.served(serving)


def divided(comm: CountedComm, problem: Problem, servers: int) -> Partition:
    """Return which server has which row."""
    rows = len(problem.start_TxD)
    call = partial(partition, rows, servers, problem.heat)
    return once(comm, "partition", (id(problem.start_TxD), servers), call)


def served(
    problem: Problem,
    split: Partition,
    comm: CountedComm,
    setup: Setup,
    report: Report,
) -> Server:
    """Make this rank's server."""
    rows = split.held(setup.roles.server(comm.rank) or 0)
    shard = setup.make(problem.start_TxD[rows].copy())

    def heard(clocks: int) -> None:
        every = setup.snapshots * setup.roles.workers
        if every and clocks // every > len(report.snapshots):
            report.snapshot(comm.Wtime(), clocks / setup.roles.workers, serving)

    serving = Server(comm, shard, setup.roles.workers, setup.rule, heard)
    return serving


def copied(problem: Problem, client: Client, setup: Setup) -> Replica:
    """Make this worker's copy; it moves by itself where it is not always read anew."""
    rule, habits = setup.rule, setup.habits
    cached = rule.fetches != 1 or rule.eager or habits.prefetch or habits.pushes > 1
    own = setup.own(problem.start_TxD.copy()) if cached and rule.gathers else None
    return Replica(client, problem.start_TxD, rule, own)


def colocated(serving: Server, comm: CountedComm) -> Colocated:
    def hear(source: int, message: np.ndarray) -> bool:
        serving.hear(source, message)
        return len(serving.ended) < serving.workers

    return Colocated(comm, serving.inbox, hear)


def last(serving: Server, timer: Timer) -> Step:
    """Return what a server has to say at its end."""
    losses = [each.loss for each in serving.log[-serving.workers :]]
    mean = float(np.mean(losses)) if losses else 0.0
    return Step(
        serving.version, mean, serving.shard.values, 0, timer.lap(), words_sent=0
    )
