"""Parameter servers (Dean 2012; Li 2014): workers compute gradients, servers keep rows.

    minibatch k ─► shard of each worker ─► gradient ─► servers ─► rows ─► workers

A worker yields a Step per clock, with the loss of its shard; a server yields one Step
at the end. The report receives the measurements of this rank. Elements sent per clock
and worker: the rows that the worker reads, and its gradient (see `workers`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dml.metrics.timer import Timer
from dml.strategies.loops.parameters import Update, row_rule
from dml.strategies.server.replicated import (
    first_with_rows,
    serve_replica,
    worker_end,
)
from dml.strategies.server.report import Report, assemble_table
from dml.strategies.server.roles import Roles
from dml.strategies.server.tables import as_table
from dml.strategies.server.workers import MinibatchParts, WorkerOptions, worker_steps
from dml.types import BadInput, CountedComm, Problem, Reducer, Shard, Step, no_op
from dml.types.ranges import Every, Size, Updates, checked
from dml.wire.collectives import tree_allreduce
from dml.wire.collectives.gather_arrays import gather_arrays
from dml.wire.comm.metered import uncounted
from dml.wire.comm.once import once
from dml.wire.comm.surviving import Surviving, with_survivors
from dml.wire.plans.partition import Partition, partition
from dml.wire.reducers.exact import exact
from dml.wire.server.client import Client
from dml.wire.server.colocated import Colocated
from dml.wire.server.consistency import Consistency
from dml.wire.server.port import Port
from dml.wire.server.replica import Replica
from dml.wire.server.replicated import Replicated
from dml.wire.server.server import Server
from dml.wire.server.slots import HostSlots, allocate

MakeShard = Callable[[np.ndarray], Shard]  # rows -> their Shard


class Setup(NamedTuple):
    """The roles of the ranks, and the settings of servers and workers.

    Attributes:
      roles: Which ranks are workers and which are servers.
      rule: Consistency: how far workers may drift apart, and when gradients are
        applied.
      copy_update: rows -> Shard that updates a worker's copy by its own gradients;
        None: the update of the servers.
      worker_options: How a worker computes and pushes.
      key_lists: Number of key lists that a server stores for each worker.
      snapshots: Number of clocks between two snapshots of the table; 0: none.
      reducer: Its `combine` adds the gradients of an update on each server.
      elastic: Whether the run continues without workers that have died, and with the
        other replicas of a server.
    """

    roles: Roles
    rule: Consistency
    copy_update: MakeShard | None = None
    worker_options: WorkerOptions = WorkerOptions()
    key_lists: Size = 64
    snapshots: Updates = 0
    reducer: Reducer = exact(tree_allreduce)
    elastic: bool = False


@checked
def server(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    *,
    comm: CountedComm,
    timer: Timer,
    setup: Setup,
    report: Report | None = None,
    every: Every | None = None,
    **epoch_options: Any,
) -> Iterator[Step]:
    """Train by the consistency of the setup; `bsp` is bit-identical to `serial`.

    Args:
      problem: Problem to train; a tree of parameters becomes a table of one column.
      batches: Indices of each clock's global minibatch, equal on all ranks.
      update: Update rule of rows, or an elementwise optimizer.
      comm: Workers and servers.
      timer: Measures the phases.
      setup: Roles of the ranks, settings of servers and workers.
      report: Receives the measurements of this rank.
      every: Number of clocks in an epoch, after which all ranks yield a Step; None: a
        worker yields a Step per clock, a server one at the end.
      **epoch_options: With `every`, the arguments `state` and `summary` of
        `epochs.train_epochs`.
    """
    key = tuple(map(id, problem))
    problem = once(comm, "table", key, partial(as_table, problem))
    update = row_rule(update)
    if every:
        if setup.elastic:
            raise BadInput(
                "expected an elastic run without epochs, got epochs, whose all-reduces "
                "need all ranks; delete --elastic"
            )
        from dml.strategies.server.epochs import train_epochs

        yield from train_epochs(
            problem,
            batches,
            update,
            comm=comm,
            timer=timer,
            setup=setup,
            every=every,
            **epoch_options,
        )
        return
    if epoch_options:
        names = ", ".join(epoch_options)
        raise TypeError(f"expected `every` with {names}, got None; pass every")
    report = Report() if report is None else report
    roles = setup.roles
    split = row_partition(comm, problem, len(roles.servers))
    # order matters: the servers of an earlier run must end before this run's messages
    if roles.are_replicated and not setup.elastic:
        raise BadInput(
            f"expected an elastic run with {roles.replicas} replicas, got none; "
            "pass --elastic"
        )
    if setup.elastic:
        check_elastic(setup)
        comm = Surviving(comm)
        comm.Agree(1)  # a barrier of the living ranks
        slots = None  # windows are not fault tolerant
    else:
        comm.Barrier()
        slots = allocate(comm, split, problem.params.shape[1])
    run = count_run(comm)
    port = Port(comm) if roles.are_replicated else comm
    local_server = (
        make_server(problem, update, split, port, setup, report, slots=slots, run=run)
        if roles.server(comm.rank) is not None
        else None
    )
    has_rows = local_server is not None

    def rows() -> np.ndarray:
        if local_server and has_rows:
            return np.asarray(local_server.shard.values)
        return problem.params[:0]

    table = partial(collect_table, comm, roles, split, rows, setup.elastic)
    if comm.rank < roles.workers:
        width = problem.params.shape[1]
        replicated = roles.are_replicated
        worker_comm: Any = worker_end(comm, roles, split, width) if replicated else comm
        for step in run_worker(
            problem,
            batches,
            update,
            comm=worker_comm,
            timer=timer,
            setup=setup,
            report=report,
            split=split,
            local_server=local_server,
            slots=slots,
            run=run,
        ):
            yield step._replace(params=table)
        return
    assert local_server
    if isinstance(port, Port):
        has_rows = serve_replica(comm, roles, local_server, port)
    else:
        local_server.serve()
    if has_rows:
        report.record_server(local_server)
    yield final_step(local_server, timer, table)


def run_worker(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: MakeShard,
    *,
    comm: CountedComm,
    timer: Timer,
    setup: Setup,
    report: Report,
    split: Partition,
    local_server: Server | None,
    slots: HostSlots | None,
    run: int,
) -> Iterator[Step]:
    """Train as a worker; a colocated rank also serves while it waits.

    Args:
      problem: Problem of a table.
      batches: Indices of each clock's global minibatch.
      update: rows -> Shard.
      comm: Workers and servers.
      timer: Measures the phases.
      setup: Roles of the ranks, settings of servers and workers.
      report: Receives the measurements of this rank.
      split: Partition of the rows among servers.
      local_server: Server on this rank; None: the rank is only a worker.
      slots: Shared memory for large values; None: messages only.
      run: Number of the run, which its messages contain.
    """
    roles = setup.roles
    colocated: Any = Colocated(comm, local_server) if local_server else None
    client = Client(
        comm,
        split,
        problem.params.shape[1],
        roles.servers,
        known=setup.key_lists,
        wait=colocated and colocated.wait,
        channels=slots.of_worker(comm.rank) if slots else (),
        run=run,
    )
    replica = make_replica(problem, client, setup, setup.copy_update or update)
    step = None
    for step in worker_steps(
        MinibatchParts(problem, batches, comm.rank, roles.workers),
        replica,
        timer=timer,
        options=setup.worker_options,
        counts=report.counts,
        poll=colocated and colocated.poll,
    ):
        yield step
    if step is None:  # the worker skipped every clock
        yield Step(client.clock, 0.0, no_op, 0, timer.lap(), words_sent=0)
    report.record_worker(client)
    if isinstance(comm, Replicated):
        comm.leave()
        report.acknowledged = np.array(comm.times()).reshape(-1, 2)
    if local_server:
        colocated.finish()
        local_server.settle()
        report.record_server(local_server)


def check_elastic(setup: Setup) -> None:
    """Raise BadInput if a run with this setup cannot continue after a death."""
    if setup.roles.workers > setup.roles.servers[0]:
        raise BadInput(
            "expected servers on ranks of their own in an elastic run, got colocated "
            "ones, whose rows die with their worker; delete --colocated"
        )


def collect_table(
    comm: CountedComm,
    roles: Roles,
    split: Partition,
    rows: Callable[[], np.ndarray],
    elastic: bool = False,
) -> np.ndarray | None:
    """Return the table on the first living rank, None elsewhere; collective.

    Args:
      comm: Workers and servers.
      roles: Which ranks are workers and which are servers.
      split: Partition of the rows among servers.
      rows: () -> the rows of the server on this rank; no rows on other ranks.
      elastic: Whether ranks may have died.
    """

    def gather(living: CountedComm, ranks: Sequence[int]) -> np.ndarray | None:
        gathered = gather_arrays(living, rows())
        if gathered is None:
            return None
        values = gathered[0]
        servers = first_with_rows(roles, ranks, values)
        return assemble_table(split, [values[rank] for rank in servers])

    return with_survivors(comm, gather) if elastic else gather(comm, range(comm.size))


def row_partition(comm: CountedComm, problem: Problem, servers: int) -> Partition:
    """Return the partition of the rows among servers."""
    params, frequency = problem.params, problem.frequency
    key = id(params), id(frequency), servers
    return once(
        comm, "partition", key, lambda: partition(len(params), servers, frequency)
    )


def count_run(comm: CountedComm) -> int:
    """Return the number of this run among those of the communicator."""
    calls = uncounted(comm).cache.calls
    calls["server"] = calls.get("server", 0) + 1
    return calls["server"]


def make_server(
    problem: Problem,
    update: MakeShard,
    split: Partition,
    comm: CountedComm,
    setup: Setup,
    report: Report,
    *,
    slots: HostSlots | None,
    run: int,
) -> Server:
    """Make the server of this rank.

    Args:
      problem: Problem of a table.
      update: rows -> Shard.
      split: Partition of the rows among servers.
      comm: Workers and servers.
      setup: Roles of the ranks, settings of servers and workers.
      report: Receives the snapshots.
      slots: Shared memory for large values; None: messages only.
      run: Number of the run, which its messages contain.
    """
    combine, workers = setup.reducer.combine, setup.roles.workers
    if combine is None:
        raise BadInput(
            "expected a reducer with `combine` on servers, got one without, whose sum "
            "needs all ranks or earlier sums; pass --strategy=synchronous"
        )
    count, least = setup.rule.update_size(workers), setup.reducer.least_terms
    if count < least:
        raise BadInput(
            f"expected updates of at least {least} gradients with this reducer, got "
            f"{count}; pass --consistency=bsp and at least {least} workers, or a "
            "smaller f"
        )
    index = setup.roles.server(comm.rank) or 0
    rows = split.rows_of(index)
    shard = update(problem.params[rows].copy())

    def on_clock(total_clocks: int) -> None:
        every = setup.snapshots * workers
        if every and total_clocks // every > len(report.snapshots):
            report.add_snapshot(comm.Wtime(), total_clocks / workers, new_server)

    channels = slots.of_server(index, workers) if slots else ()
    new_server = Server(
        comm,
        shard,
        workers,
        setup.rule,
        on_clock,
        combine,
        channels=channels,
        lists=setup.key_lists,
        run=run,
        elastic=setup.elastic and not setup.roles.are_replicated,
    )
    return new_server


def make_replica(
    problem: Problem, client: Client, setup: Setup, make_shard: MakeShard
) -> Replica:
    """Make this worker's copy of the rows.

    The worker's own gradients update the copy if rows are cached between clocks.

    Args:
      problem: Problem of a table.
      client: Connection to the servers.
      setup: Roles of the ranks, settings of servers and workers.
      make_shard: rows -> Shard that updates the copy.
    """
    rule, worker_options = setup.rule, setup.worker_options
    cached = (
        rule.pull_period != 1
        or rule.push_based
        or worker_options.prefetch
        or worker_options.push_period > 1
    )
    if cached and not rule.by_clock:
        return Replica(client, problem.params, rule, make_shard(problem.params.copy()))
    return Replica(client, problem.params, rule, None)


def final_step(local_server: Server, timer: Timer, table: Callable[[], Any]) -> Step:
    """Return the Step of a server, with the mean loss of the last gradients."""
    last_entries = local_server.log[-local_server.workers :]
    losses = [entry.loss for entry in last_entries]
    mean = float(np.mean(losses)) if losses else 0.0
    return Step(local_server.version, mean, table, 0, timer.lap(), words_sent=0)
