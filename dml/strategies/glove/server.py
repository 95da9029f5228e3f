"""GloVe on parameter servers, an epoch after another.

    minibatch ─► part of each worker ─► rows pulled ─► gradients, summed by row
                                             ▲               │ pushed
                                          servers: AdaGrad ◄─┘

An epoch begins and ends with all ranks together. A worker has two tables of rows, as
they began and its copy. Words a minibatch: those of the rows that its parts touch,
twice, and of their numbers.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from dml.metrics.timer import Timer
from dml.strategies.glove.served import packed, unpacked
from dml.strategies.server.report import Report
from dml.strategies.server.roles import Roles
from dml.strategies.server.server import Setup
from dml.strategies.server.server import server as serve
from dml.strategies.server.sums import Sums
from dml.types import CountedComm, Problem, Step
from dml.update.rows import pack, unpack
from dml.update.table import Table
from dml.wire.messages import tree_allreduce
from dml.wire.messages.collect import collect
from dml.wire.partition import Partition, partition
from dml.wire.rows import Keys


def server(
    problem: Problem,
    batches: Iterable[Iterable[np.ndarray]],
    update: float,
    *,
    comm: CountedComm,
    timer: Timer,
    setup: Setup,
    summary: dict[str, Any] | None = None,
) -> Iterator[Step]:
    """Train epoch after epoch; yield a Step on all ranks after each.

    problem: of GloVe, equal on all ranks.
    batches: the indices of each minibatch, by epoch; equal on all ranks.
    update: the rate of AdaGrad.
    comm: the ranks, workers and servers.
    timer: measures the phases.
    setup: how ranks share the work.
    summary: receives the staleness and waiting of all epochs.
    """
    assert problem.table
    task, roles, dim = problem.table(), setup.roles, problem.products.dim
    split = partition(len(task.params), len(roles.servers), task.frequency)
    shard, own = lasting(problem, update, dim, held(split, roles, comm.rank))
    setup, sums, number = setup._replace(own=own), Sums(), 0
    for epoch, minibatches in enumerate(batches, 1):
        sent, begun, clocks = comm.bytes_sent, timer.clock(), list(minibatches)
        totals, seconds = np.zeros(2), defaultdict[str, float](float)
        report = Report()
        for step in serve(
            *(task, clocks, lambda rows: shard),
            comm=comm,
            timer=timer,
            setup=setup,
            report=report,
        ):
            totals += step.loss * step.examples, step.examples
            for phase, spent in step.seconds.items():
                seconds[phase] += spent
        with timer("wait"):
            tree_allreduce(comm, totals)
            sums.add(comm, report)
        if summary is not None:
            summary |= sums.summary()
        seconds["wait"] += timer.lap()["wait"]
        # an epoch's connections are made in no phase; neither is what a server does
        seconds["wire"] += timer.clock() - begun - sum(seconds.values())
        number += len(clocks)
        yield Step(
            number=number,
            loss=float(totals[0] / totals[1]),
            params=partial(collected, comm, roles, split, shard, dim),
            examples=problem.examples,
            seconds=dict(seconds),
            words_sent=(comm.bytes_sent - sent) // 4,
            epoch=epoch,
        )


def held(split: Partition, roles: Roles, rank: int) -> Keys:
    """Return the rows that a rank serves; none where it is only a worker."""
    number = roles.server(rank)
    return slice(0) if number is None else split.held(number)


def lasting(
    problem: Problem, rate: float, dim: int, rows: Keys
) -> tuple[Table, Callable[[np.ndarray], Table]]:
    """Return what lasts from epoch to epoch: a server's rows, a worker's squares."""
    state = unpack(problem.params, dim)
    start_TxR = packed(state.vectors_TxD, state.biases_T, 0)
    squares_TxR = packed(state.vector_squares_TxD, state.bias_squares_T, 1)
    rates_R = np.full(start_TxR.shape[1], rate, np.float32)
    rates_R[-1] = 1  # a bias moves at rate 1
    shard = Table("glove", start_TxR[rows].copy(), rates_R, (squares_TxR[rows].copy(),))

    def own(table_TxR: np.ndarray) -> Table:  # without the squares of other workers
        return Table("glove", table_TxR, rates_R, (squares_TxR,))

    return shard, own


def collected(
    comm: CountedComm, roles: Roles, split: Partition, shard: Table, dim: int
) -> np.ndarray | None:
    """Return the table with its squares on rank 0, None elsewhere; collective."""
    found = collect(comm, np.stack([shard.values, *shard.state], axis=1))
    if found is None:
        return None
    (parts,) = found
    rows, columns = int(split.edges[-1]), shard.values.shape[1]
    values_TxR, squares_TxR = np.empty((2, rows, columns), np.float32)
    for number, rank in enumerate(roles.servers):
        held = split.held(number)
        values_TxR[held], squares_TxR[held] = parts[rank].swapaxes(0, 1)
    return pack(unpacked(values_TxR, squares_TxR, dim))
