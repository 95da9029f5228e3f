"""Parameter servers (Dean 2012; Li 2014): workers compute gradients, servers keep rows.

    minibatch k ─► shard of each worker ─► gradient ─► servers ─► rows ─► workers

A worker yields a Step per clock, with the loss of its shard; a server yields one Step
at the end. The report receives the measurements of this rank. Words per clock: for each
worker those of the rows that it reads and of its gradient (`workers`).
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dml.metrics.timer import Timer
from dml.strategies.parameters import Update
from dml.strategies.server.report import Report, joined
from dml.strategies.server.roles import Roles
from dml.strategies.server.tables import as_table, row_rule
from dml.strategies.server.workers import Parts, WorkerOptions, worker_steps
from dml.types import BadInput, CountedComm, Problem, Reducer, Shard, Step, no_op
from dml.wire.collectives import tree_allreduce
from dml.wire.collectives.gather_arrays import gather_arrays
from dml.wire.comm.once import once
from dml.wire.plans.partition import Partition, partition
from dml.wire.reducers.exact import exact
from dml.wire.server.client import Client
from dml.wire.server.colocated import Colocated
from dml.wire.server.consistency import Consistency
from dml.wire.server.replica import Replica
from dml.wire.server.server import Server

Make = Callable[[np.ndarray], Shard]  # rows -> the Shard that stores and updates them


class Setup(NamedTuple):
    """How ranks share the work.

    Attributes:
      roles: Which ranks are workers and which are servers.
      rule: Consistency: how far workers may drift apart, and when gradients are
        applied.
      own: rows -> Shard that applies a worker's gradients to its copy; None: the
        servers'.
      worker_options: How a worker computes and pushes.
      known: Number of key lists that a server caches for each worker.
      snapshots: Number of clocks between two copies of the table; 0: none.
      reducer: Its `combine` adds the terms of an update on each server.
    """

    roles: Roles
    rule: Consistency
    own: Make | None = None
    worker_options: WorkerOptions = WorkerOptions()
    known: int = 64
    snapshots: int = 0
    reducer: Reducer = exact(tree_allreduce)


def server(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    *,
    comm: CountedComm,
    timer: Timer,
    setup: Setup,
    report: Report | None = None,
    every: int | None = None,
    **own: Any,
) -> Iterator[Step]:
    """Train by the setup's consistency; `bsp` has the bits of `serial`.

    Args:
      problem: Problem to train; a tree of parameters becomes a table of one column.
      batches: Indices of each clock's global minibatch, equal on all ranks.
      update: Rule of rows, or an optimizer that treats all numbers independently.
      comm: Ranks, workers and servers.
      timer: Measures the phases.
      setup: How ranks share the work.
      report: Receives this rank's measurements.
      every: Number of updates in an epoch, after which all ranks yield a Step; None: a
        worker yields a Step per clock, a server one at the end.
      **own: With `every`, the options `state` and `summary` of `epochs.by_epochs`.
    """
    key, call = tuple(map(id, problem)), partial(as_table, problem)
    problem = once(comm, "table", key, call)
    update = row_rule(update)
    if every:
        from dml.strategies.server.epochs import by_epochs

        yield from by_epochs(
            problem,
            batches,
            update,
            comm=comm,
            timer=timer,
            setup=setup,
            every=every,
            **own,
        )
        return
    if own:
        raise TypeError(f"expected `every` with {', '.join(own)}, got None; pass every")
    # order matters: servers of an earlier run must end before a message of this one
    comm.Barrier()
    report = Report() if report is None else report
    roles = setup.roles
    split = row_partition(comm, problem, len(roles.servers))
    serving = (
        make_server(problem, update, split, comm, setup, report)
        if roles.server(comm.rank) is not None
        else None
    )

    def values() -> np.ndarray:
        return np.asarray(serving.shard.values) if serving else problem.params[:0]

    table = partial(collected, comm, roles, split, values)
    if comm.rank < roles.workers:
        for step in run_worker(
            problem,
            batches,
            update,
            comm=comm,
            timer=timer,
            setup=setup,
            report=report,
            split=split,
            serving=serving,
        ):
            yield step._replace(params=table)
        return
    assert serving
    serving.serve()
    report.served(serving)
    yield final_step(serving, timer, table)


def run_worker(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Make,
    *,
    comm: CountedComm,
    timer: Timer,
    setup: Setup,
    report: Report,
    split: Partition,
    serving: Server | None,
) -> Iterator[Step]:
    """Train as a worker; a colocated rank also serves while it waits.

    Args:
      problem: The problem of a table.
      batches: Indices of each clock's global minibatch.
      update: rows -> Shard.
      comm: Ranks.
      timer: Measures the phases.
      setup: How ranks share the work.
      report: Receives this rank's measurements.
      split: Partition of the rows among servers.
      serving: This rank's server; None: it has none.
    """
    roles = setup.roles
    meanwhile: Any = colocated(serving, comm) if serving else None
    client = Client(
        comm,
        split,
        problem.params.shape[1],
        roles.servers,
        known=setup.known,
        wait=meanwhile and meanwhile.wait,
    )
    replica = make_replica(problem, client, setup, setup.own or update)
    step = None
    for step in worker_steps(
        Parts(problem, batches, comm.rank, roles.workers),
        replica,
        timer=timer,
        options=setup.worker_options,
        counts=report.counts,
        poll=meanwhile and meanwhile.poll,
    ):
        yield step
    if step is None:  # the worker skipped every clock
        yield Step(client.clock, 0.0, no_op, 0, timer.lap(), words_sent=0)
    report.worked(client)
    if serving:
        meanwhile.finish()
        serving.settle()
        report.served(serving)


def collected(
    comm: CountedComm,
    roles: Roles,
    split: Partition,
    rows: Callable[[], np.ndarray],
) -> np.ndarray | None:
    """Return the servers' rows on rank 0, None elsewhere; collective, after the run.

    Args:
      comm: Ranks.
      roles: Which ranks are workers and which are servers.
      split: Partition of the rows among servers.
      rows: () -> the rows of this rank's server.
    """
    gathered = gather_arrays(comm, rows())
    if gathered is None:
        return None
    return joined(split, [gathered[0][rank] for rank in roles.servers])


def row_partition(comm: CountedComm, problem: Problem, servers: int) -> Partition:
    """Return the partition of the rows among servers."""
    params, frequency = problem.params, problem.frequency
    key = id(params), id(frequency), servers
    return once(
        comm, "partition", key, lambda: partition(len(params), servers, frequency)
    )


def make_server(
    problem: Problem,
    update: Make,
    split: Partition,
    comm: CountedComm,
    setup: Setup,
    report: Report,
) -> Server:
    """Make this rank's server.

    Args:
      problem: The problem of a table.
      update: rows -> Shard.
      split: Partition of the rows among servers.
      comm: Ranks.
      setup: How ranks share the work.
      report: Receives the snapshots.
    """
    combine, workers = setup.reducer.combine, setup.roles.workers
    if combine is None:
        raise BadInput(
            "expected a reducer with `combine` on servers, got one without, whose sum "
            "needs all ranks; pass --strategy=synchronous"
        )
    rows = split.rows_of(setup.roles.server(comm.rank) or 0)
    shard = update(problem.params[rows].copy())

    def on_clock(clocks: int) -> None:
        every = setup.snapshots * workers
        if every and clocks // every > len(report.snapshots):
            report.snapshot(comm.Wtime(), clocks / workers, serving)

    serving = Server(comm, shard, workers, setup.rule, on_clock, combine)
    return serving


def make_replica(problem: Problem, client: Client, setup: Setup, make: Make) -> Replica:
    """Make this worker's copy of the rows.

    Its own gradients update the copy if rows are cached between clocks.

    Args:
      problem: The problem of a table.
      client: Connection to the servers.
      setup: How ranks share the work.
      make: rows -> Shard.
    """
    rule, worker_options = setup.rule, setup.worker_options
    cached = (
        rule.pull_period != 1
        or rule.push_based
        or worker_options.prefetch
        or worker_options.pushes > 1
    )
    own = make(problem.params.copy()) if cached and rule.aggregation_count else None
    return Replica(client, problem.params, rule, own)


def colocated(serving: Server, comm: CountedComm) -> Colocated:
    def handle(source: int, message: np.ndarray) -> bool:
        serving.handle(source, message)
        return len(serving.ended) < serving.workers

    return Colocated(comm, serving.inbox, handle)


def final_step(serving: Server, timer: Timer, table: Callable[[], Any]) -> Step:
    """Return the Step that a server yields at the end."""
    losses = [each.loss for each in serving.log[-serving.workers :]]
    mean = float(np.mean(losses)) if losses else 0.0
    return Step(serving.version, mean, table, 0, timer.lap(), words_sent=0)
