"""CYCLADES (Pan 2016) and synchronous minibatches: equal bits on any workers.

    plan   block 0: worker 0 ▯▯▯  worker 1 ▯▯     made once: blocks keep their edges,
           block 1: worker 0 ▯▯   worker 1 ▯▯▯    epochs visit them in a new order

Both are serial descent in the epoch's order, except that changes of deferred rows are
made at the end of a block. In minibatches all rows are deferred. Words a step: the
loss, and the rows changed.
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
    """Train block after block; yield a Step an epoch.

    problem: the problem, equal on all ranks; it needs a kernel with a model.
    batches: the order of each epoch, equal on all ranks, in blocks of `batch` edges.
    update: rates and momentum.
    comm: the ranks, all on one host.
    timer: measures the phases.
    deferred: mask of the rows whose changes are deferred to the end of a block. If all
        are, the method is a synchronous minibatch.
    batch: edges of a block.
    threads: workers of each rank.
    """
    start, kernel = problem.params, problem.kernel
    with closing(Workers(comm, threads, problem.examples)) as crew:
        with timer("plan"):
            edges = kernel.data.edges
            made = load_shared(comm, lambda: plan(edges, batch, crew.count, deferred))
        board = pinboard(problem, batch, crew, made)
        momentum = bool(update.momentum)
        state = memory.state(start, crew.count, momentum, False, crew.allocate)
        descend = batch_loop(kernel.model)
        table = one_table(problem, state, crew)

        def work(data: Any, order: Order, pace: EpochSettings, worker: Worker) -> Any:
            return descend(state, data, order, worker, pace, board)

        def updates(order: Order) -> int:
            return len(order.visits) if deferred.all() else order.steps

        yield from epochs(
            problem, batches, update, crew, timer, work, table, updates=updates
        )


def pinboard(problem: Problem, batch: int, crew: Workers, plan: Plan) -> Board:
    """Allocate the gradients of a batch, and sums for deferred rows."""
    starts, start = problem.kernel.data.edges.starts, problem.params
    bounds = np.append(starts[:-1:batch], starts[-1])
    most, rows = int(np.diff(bounds).max()), len(start) if plan.deferred.any() else 0

    def allocate(length: int) -> np.ndarray:
        found = crew.allocate(length * start[0].size, start.dtype)
        return found.reshape(length, *start.shape[1:])

    moves, seen = (crew.allocate(size, np.uint8) for size in (batch, rows))
    return Board(plan, allocate(most), moves, allocate(rows), seen)
