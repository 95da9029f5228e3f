"""GloVe on parameter servers: workers compute gradients of rows, servers keep them.

    minibatch ─► part of each worker ─► rows pulled ─► gradients, summed by row
                                             ▲               │ pushed
                                          servers: AdaGrad ◄─┘

An epoch begins and ends with all ranks together. A worker has two tables of rows, as
they began and its copy. Words a minibatch: those of the rows that its parts touch,
twice, and of their numbers.
"""

from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from dml.data.tiles import Tiles
from dml.metrics.timer import Timer
from dml.strategies.glove.problem import packed, problem, unpacked
from dml.strategies.server.report import WORK, Report
from dml.strategies.server.roles import Roles
from dml.strategies.server.server import Setup
from dml.strategies.server.server import server as serve
from dml.strategies.server.workers import Habits
from dml.types import CountedComm, Embeddings, Step
from dml.update.table import Table
from dml.wire.messages import tree_allreduce
from dml.wire.messages.collect import collect as collected
from dml.wire.messages.consistency import Consistency
from dml.wire.partition import Partition, partition

USUAL = Habits()
STALEST = 1023  # what is staler is counted as this


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
    squares_TxR = packed(state.vector_squares_TxD, state.bias_squares_T, 1)
    rates_R = np.full(task.start_TxD.shape[1], rate, np.float32)
    rates_R[-1] = 1  # a bias moves at rate 1
    number = roles.server(comm.rank)
    held = slice(0) if number is None else split.held(number)
    # what lasts from epoch to epoch: a server's rows, the squares that a worker knows
    shard = Table(
        "glove", task.start_TxD[held].copy(), rates_R, (squares_TxR[held].copy(),)
    )

    def own(table_TxR: np.ndarray) -> Table:  # of the others it knows no squares
        return Table("glove", table_TxR, rates_R, (squares_TxR,))

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


class Sums:
    """Adds up what the epochs' reports say, on all ranks."""

    def __init__(self) -> None:
        self.gradients_by_staleness = np.zeros(STALEST + 1)
        self.work = np.zeros(len(WORK))
        self.late = 0

    def add(self, comm: CountedComm, report: Report) -> None:
        stale = [one.staleness for one in report.log if one.rows and not one.late]
        counts = np.bincount(
            np.minimum(np.array(stale, np.int64), STALEST), minlength=STALEST + 1
        )
        late = sum(one.late for one in report.log)
        found = np.concatenate([counts, report.work.sum(0), [late]])
        tree_allreduce(comm, found)
        self.gradients_by_staleness += found[: STALEST + 1]
        self.work += found[STALEST + 1 : -1]
        self.late += int(found[-1])

    def summary(self) -> dict[str, Any]:
        """Return the numbers of all epochs so far."""
        counts = np.trim_zeros(self.gradients_by_staleness, "b")
        work = dict(zip(WORK, self.work.tolist(), strict=True))
        busy = work["computed"] + work["waited"]
        return {
            "staleness": counts.astype(int).tolist(),
            "staleness_mean": float(np.arange(len(counts)) @ counts)
            / (counts.sum() or 1),
            "staleness_max": max(0, len(counts) - 1),
            "late": self.late,
            "idle_share": work["waited"] / (busy or 1),
            "keys_sent": int(work["keys_sent"]),
            "keys_known": int(work["keys_known"]),
            "nonfinite": int(work["nonfinite"]),
        }


def minibatches(count: int, batch: int) -> Iterator[np.ndarray]:
    """Yield the numbers of an epoch's minibatches; the last one may be shorter."""
    for start in range(0, count, batch):
        yield np.arange(start, min(start + batch, count))


def collect(
    comm: CountedComm, roles: Roles, split: Partition, shard: Table, dim: int
) -> Embeddings | None:
    """Return the state on rank 0, while nobody writes; collective."""
    parts = collected(comm, np.stack([shard.values, *shard.state], axis=1))
    if parts is None:
        return None
    rows, columns = int(split.edges[-1]), shard.values.shape[1]
    values_TxR, squares_TxR = np.empty((2, rows, columns), np.float32)
    for number, rank in enumerate(roles.servers):
        held = split.held(number)
        values_TxR[held], squares_TxR[held] = parts[rank].swapaxes(0, 1)
    return unpacked(values_TxR, squares_TxR, dim)
