"""CYCLADES (Pan 2016) and synchronous minibatches on a shared table.

    plan   block 0: worker 0 ▯▯▯  worker 1 ▯▯     The plan is made once. All epochs have
           block 1: worker 0 ▯▯   worker 1 ▯▯▯    the same blocks, in different orders.

The edges ▯ of a block are divided among workers by connected components of its conflict
graph, so that two workers share no row. The result is bit-identical on any number of
workers. It is bit-identical to serial descent in the order of the epoch, except for
deferred rows, which are left out of the graph and change at the end of a block. If all
rows are deferred, a block is a synchronous minibatch. A barrier ends each block.
Elements sent per Step: an all-reduce of the loss and the number of changed rows.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import numpy as np

from dml.metrics.timer import Timer
from dml.strategies.shared.workers import (
    Descent,
    Workers,
    shared_table,
    train_epochs,
)
from dml.types import CountedComm, Problem, Step
from dml.types.ranges import Large, Threads, checked
from dml.wire.memory import state as memory
from dml.wire.memory.batches import Board, batch_loop
from dml.wire.memory.conflicts import Plan, plan
from dml.wire.memory.shared import load_shared
from dml.wire.memory.state import EpochSettings, Order, Worker


@checked
def cyclades(
    problem: Problem,
    batches: Iterable[Order],
    update: Descent,
    *,
    comm: CountedComm,
    timer: Timer,
    deferred: np.ndarray,
    batch: Large,
    threads: Threads = 1,
) -> Iterator[Step]:
    """Train block after block; yield a Step per epoch.

    Args:
      problem: Problem to train, equal on all ranks; it needs a kernel with a model.
      batches: Order of each epoch, equal on all ranks, in blocks of `batch` edges.
      update: Learning rates and momentum.
      comm: Ranks, all on one host.
      timer: Measures the phases.
      deferred: Mask of the rows that change only at the end of a block; if all rows
        are deferred, a block is a synchronous minibatch.
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
        board = allocate_board(problem, batch, workers, blocks)
        momentum = bool(update.momentum)
        state = memory.state(start, workers.count, momentum, False, workers.allocate)
        descend = batch_loop(kernel.model)
        table = shared_table(problem, state, workers)

        def work(
            data: Any, order: Order, settings: EpochSettings, worker: Worker
        ) -> Any:
            return descend(state, data, order, worker, settings, board)

        def updates(order: Order) -> int:
            return len(order.visits) if deferred.all() else order.steps

        yield from train_epochs(
            problem,
            batches,
            update,
            workers=workers,
            timer=timer,
            work=work,
            table=table,
            updates=updates,
        )


def allocate_board(problem: Problem, batch: int, workers: Workers, plan: Plan) -> Board:
    """Allocate the gradients of a block, and sums for deferred rows.

    Args:
      problem: Problem with a kernel.
      batch: Number of edges in a block.
      workers: Workers of all ranks, which share the board.
      plan: Division of the blocks among workers.
    """
    starts, table = problem.kernel.data.edges.starts, problem.params
    block_starts = np.append(starts[:-1:batch], starts[-1])
    largest_block = int(np.diff(block_starts).max())  # rows of the edges of a block
    sums = len(table) if plan.deferred.any() else 0

    def allocate(rows: int) -> np.ndarray:
        values = workers.allocate(rows * table[0].size, table.dtype)
        return values.reshape(rows, *table.shape[1:])

    # order matters: all ranks allocate shared memory in the same order
    moves = workers.allocate(batch, np.uint8)
    seen = workers.allocate(sums, np.uint8)
    return Board(plan, allocate(largest_block), moves, allocate(sums), seen)
