"""CYCLADES (Pan 2016) and synchronous minibatches: equal bits on any number of workers.

    plan   block 0: worker 0 ▯▯▯  worker 1 ▯▯     made once: blocks keep their edges,
           block 1: worker 0 ▯▯   worker 1 ▯▯▯    epochs visit blocks in a new order

A block's edges are divided among workers by connected components of its conflict graph,
so that two workers share no row. The result is that of serial descent in the epoch's
order, except for `deferred` rows: they are left out of the graph and change at the
end of a block. If all rows are deferred, a block is a synchronous minibatch. A barrier
ends each block. Words per Step: the loss, and the rows changed.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import numpy as np

from dml.metrics.timer import Timer
from dml.strategies.shared.workers import (
    Descent,
    Workers,
    epochs,
    one_table,
)
from dml.types import CountedComm, Problem, Step
from dml.wire.memory import state as memory
from dml.wire.memory.batches import Board, batch_loop
from dml.wire.memory.conflicts import Plan, plan
from dml.wire.memory.shared import load_shared
from dml.wire.memory.state import EpochSettings, Order, Worker


def cyclades(
    problem: Problem,
    batches: Iterable[Order],
    update: Descent,
    *,
    comm: CountedComm,
    timer: Timer,
    deferred: np.ndarray,
    batch: int,
    threads: int = 1,
) -> Iterator[Step]:
    """Train block after block; yield a Step per epoch.

    Args:
      problem: Problem to train, equal on all ranks; it needs a kernel with a model.
      batches: Order of each epoch, equal on all ranks, in blocks of `batch` edges.
      update: Learning rates and momentum.
      comm: Ranks, all on one host.
      timer: Measures the phases.
      deferred: Mask of the rows that change at the end of a block only; if all do, a
        block is a synchronous minibatch.
      batch: Number of edges in a block.
      threads: Number of workers of each rank.
    """
    start, kernel = problem.params, problem.kernel
    with closing(Workers(comm, threads, problem.examples)) as workers:
        with timer("plan"):
            edges = kernel.data.edges
            blocks = load_shared(
                comm, lambda: plan(edges, batch, workers.count, deferred)
            )
        board = allocated(problem, batch, workers, blocks)
        momentum = bool(update.momentum)
        state = memory.state(start, workers.count, momentum, False, workers.allocate)
        descend = batch_loop(kernel.model)
        table = one_table(problem, state, workers)

        def work(
            data: Any, order: Order, settings: EpochSettings, worker: Worker
        ) -> Any:
            return descend(state, data, order, worker, settings, board)

        def updates(order: Order) -> int:
            return len(order.visits) if deferred.all() else order.steps

        yield from epochs(
            problem,
            batches,
            update,
            workers=workers,
            timer=timer,
            work=work,
            table=table,
            updates=updates,
        )


def allocated(problem: Problem, batch: int, workers: Workers, plan: Plan) -> Board:
    """Allocate the gradients of a block, and sums for deferred rows.

    Args:
      problem: The problem.
      batch: Number of edges in a block.
      workers: Threads of this rank.
      plan: Division of the blocks among workers.
    """
    starts, start = problem.kernel.data.edges.starts, problem.params
    bounds = np.append(starts[:-1:batch], starts[-1])
    most, rows = int(np.diff(bounds).max()), len(start) if plan.deferred.any() else 0

    def allocate(length: int) -> np.ndarray:
        values = workers.allocate(length * start[0].size, start.dtype)
        return values.reshape(length, *start.shape[1:])

    moves, seen = (workers.allocate(size, np.uint8) for size in (batch, rows))
    return Board(plan, allocate(most), moves, allocate(rows), seen)
