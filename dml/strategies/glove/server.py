"""GloVe on parameter servers: workers compute gradients of rows, servers keep them.

    minibatch ─► part of each worker ─► rows pulled ─► gradients, summed by row
                                             ▲               │ pushed
                                          servers: AdaGrad ◄─┘

An epoch begins and ends with all ranks together. A worker has two tables of rows, as
they began and its copy. Words a minibatch: those of the rows that its parts touch,
twice, and of their numbers.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from dml.data.tiles import Tiles
from dml.metrics.timer import Timer
from dml.strategies.glove.problem import packed, problem, unpacked
from dml.strategies.server.report import Report
from dml.strategies.server.roles import Roles
from dml.strategies.server.server import Setup
from dml.strategies.server.server import server as serve
from dml.strategies.server.sums import Sums
from dml.strategies.server.workers import Habits
from dml.types import CountedComm, Embeddings, Step
from dml.update.table import Table
from dml.wire.messages import tree_allreduce
from dml.wire.messages.collect import collect as collected
from dml.wire.messages.consistency import Consistency
from dml.wire.partition import Partition, partition
from dml.wire.rows import Keys

USUAL = Habits()


def server(
    state: Embeddings,
    tiles: Tiles,
    rate: float,
    timer: Timer,
    *,
    comm: CountedComm,
    batch: int,
    roles: Roles,
    rule: Consistency,
    habits: Habits = USUAL,
    known: int = 64,
    epoch: int = 0,
    summary: dict[str, Any] | None = None,
) -> Iterator[Step]:
    """Train for ever, an epoch a step, on all ranks in lockstep.

    What all epochs together say of staleness and waiting goes into the summary.
    """
    dim, count = state.vectors_TxD.shape[1], len(tiles.logs)
    task = problem(state, tiles, batch)
    split = partition(len(task.start_TxD), len(roles.servers), task.heat)
    shard, own = lasting(state, rate, task.start_TxD, held(split, roles, comm.rank))
    setup = Setup(roles, rule, lambda start: shard, own, habits, known)
    sums = Sums()
    while True:
        epoch, sent, begun = epoch + 1, comm.bytes_sent, timer.clock()
        totals, seconds = np.zeros(2), defaultdict[str, float](float)
        numbers, report = minibatches(count, batch), Report()
        run = serve(task, numbers, timer, comm=comm, setup=setup, report=report)
        for step in run:
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
        yield Step(
            epoch,
            float(totals[0] / totals[1]),
            partial(collect, comm, roles, split, shard, dim),
            count,
            dict(seconds),
            (comm.bytes_sent - sent) // 4,
        )


def held(split: Partition, roles: Roles, rank: int) -> Keys:
    """Return the rows that a rank serves; none where it only works."""
    number = roles.server(rank)
    return slice(0) if number is None else split.held(number)


def lasting(
    state: Embeddings, rate: float, start_TxR: np.ndarray, rows: Keys
) -> tuple[Table, Callable[[np.ndarray], Table]]:
    """Make what lasts from epoch to epoch: a server's rows, a worker's squares."""
    squares_TxR = packed(state.vector_squares_TxD, state.bias_squares_T, 1)
    rates_R = np.full(start_TxR.shape[1], rate, np.float32)
    rates_R[-1] = 1  # a bias moves at rate 1
    shard = Table("glove", start_TxR[rows].copy(), rates_R, (squares_TxR[rows].copy(),))

    def own(table_TxR: np.ndarray) -> Table:  # of the others it knows no squares
        return Table("glove", table_TxR, rates_R, (squares_TxR,))

    return shard, own


def minibatches(count: int, batch: int) -> Iterator[np.ndarray]:
    """Yield the numbers of an epoch's minibatches; the last one may be shorter."""
    for start in range(0, count, batch):
        yield np.arange(start, min(start + batch, count))


def collect(
    comm: CountedComm, roles: Roles, split: Partition, shard: Table, dim: int
) -> Embeddings | None:
    """Return the state on rank 0, while nobody writes; collective."""
    found = collected(comm, np.stack([shard.values, *shard.state], axis=1))
    if found is None:
        return None
    (parts,) = found
    rows, columns = int(split.edges[-1]), shard.values.shape[1]
    values_TxR, squares_TxR = np.empty((2, rows, columns), np.float32)
    for number, rank in enumerate(roles.servers):
        held = split.held(number)
        values_TxR[held], squares_TxR[held] = parts[rank].swapaxes(0, 1)
    return unpacked(values_TxR, squares_TxR, dim)
