"""CYCLADES (Pan 2016) and synchronous minibatches: equal bits on any workers.

    plan   block 0: worker 0 ▯▯▯  worker 1 ▯▯     made once: blocks keep their edges,
           block 1: worker 0 ▯▯   worker 1 ▯▯▯    epochs visit them in a new order

Both are serial descent in the epoch's order, except that rows apart change at the end
of a batch. In minibatches all rows do. Words a step: the loss, and the rows changed.
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
from dml.wire.memory.batches import Board
from dml.wire.memory.batches import batches as compiled
from dml.wire.memory.conflicts import Plan, plan
from dml.wire.memory.shared import place
from dml.wire.memory.state import Order, Pace, Worker


def cyclades(
    problem: Problem,
    batches: Iterable[Order],
    update: Descent,
    *,
    comm: CountedComm,
    timer: Timer,
    apart: np.ndarray,
    batch: int,
    threads: int = 1,
) -> Iterator[Step]:
    """Train block after block; yield a Step an epoch.

    Args:
      problem: Problem to train, equal on all ranks; it needs a kernel with a model.
      batches: Order of each epoch, equal on all ranks, in blocks of `batch` edges.
      update: Learning rates and momentum.
      comm: Ranks, all on one host.
      timer: Measures the phases.
      apart: For each row, whether its changes wait for the end of a block. All rows:
        the method is a synchronous minibatch.
      batch: Edges of a block.
      threads: Number of workers of each rank.
    """
    start, kernel = problem.params, problem.kernel
    with closing(Workers(comm, threads, problem.examples)) as crew:
        with timer("plan"):
            edges = kernel.data.edges
            made = place(comm, lambda: plan(edges, batch, crew.count, apart))
        board = pinboard(problem, batch, crew, made)
        momentum = bool(update.momentum)
        state = memory.state(start, crew.count, momentum, False, crew.allocate)
        descend = compiled(kernel.model)
        table = one_table(problem, state, crew)

        def work(data: Any, order: Order, pace: Pace, worker: Worker) -> Any:
            return descend(state, data, order, worker, pace, board)

        def updates(order: Order) -> int:
            return len(order.visits) if apart.all() else order.steps

        yield from epochs(
            problem, batches, update, crew, timer, work, table, updates=updates
        )


def pinboard(problem: Problem, batch: int, crew: Workers, plan: Plan) -> Board:
    """Allocate the gradients of a batch, and sums where rows are apart."""
    starts, start = problem.kernel.data.edges.starts, problem.params
    bounds = np.append(starts[:-1:batch], starts[-1])
    most, rows = int(np.diff(bounds).max()), len(start) if plan.apart.any() else 0

    def allocate(length: int) -> np.ndarray:
        found = crew.allocate(length * start[0].size, start.dtype)
        return found.reshape(length, *start.shape[1:])

    moves, seen = (crew.allocate(size, np.uint8) for size in (batch, rows))
    return Board(plan, allocate(most), moves, allocate(rows), seen)
