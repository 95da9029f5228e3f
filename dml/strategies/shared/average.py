"""Parallel SGD: the mean of tables that the workers train independently.

    worker 0   blocks 5 0 1   w_0 ─┐
    worker 1   blocks 2 4 3   w_1 ─┴─► (w_0 + w_1) / 2       (Zinkevich 2010)

Workers wait for each other at the end of an epoch only. The memory contains one table
per worker. Elements sent per Step: an all-reduce of the loss and the number of changed
rows.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import numpy as np

from dml.metrics.timer import Timer
from dml.strategies.shared.workers import (
    Descent,
    EpochTable,
    Workers,
    allocate_gradients,
    settle,
    train_epochs,
)
from dml.types import CountedComm, Problem, Step
from dml.types.ranges import Threads, checked
from dml.wire.memory import hogwild as hogwild_policy
from dml.wire.memory import state as memory
from dml.wire.memory.lock_free import lock_free_loop
from dml.wire.memory.state import EpochSettings, Order, Worker


@checked
def average(
    problem: Problem,
    batches: Iterable[Order],
    update: Descent,
    *,
    comm: CountedComm,
    timer: Timer,
    threads: Threads = 1,
) -> Iterator[Step]:
    """Train the table of each worker on its blocks; yield a Step per epoch.

    Args:
      problem: Problem to train, equal on all ranks; it needs a kernel with a model.
      batches: Order of each epoch, equal on all ranks.
      update: Learning rates and momentum.
      comm: Ranks, all on one host.
      timer: Measures the phases.
      threads: Number of workers of each rank.

    Yields:
      Steps whose params are the mean of all tables.
    """
    start, kernel = problem.params, problem.kernel
    with closing(Workers(comm, threads, problem.examples)) as workers:
        flat = workers.allocate(workers.count * start.size, start.dtype)
        tables = flat.reshape(workers.count, *start.shape)
        momentum = bool(update.momentum)
        states = [
            memory.state(start, 1, momentum, False, np.zeros) for _ in workers.local
        ]
        grads = [allocate_gradients(problem) for _ in workers.local]
        descend = lock_free_loop(kernel.model, hogwild_policy)
        if workers.comm.rank == 0:
            tables[:] = start

        def work(
            data: Any, order: Order, settings: EpochSettings, worker: Worker
        ) -> Any:
            order = worker_order(order, worker)
            thread = worker.index % threads
            state = states[thread]._replace(table=tables[worker.index])
            losses = descend(state, data, order, Worker(0, 1), settings, grads[thread])
            settle(kernel, data, order.steps, state.table, state.velocity)
            return losses

        def mean() -> np.ndarray:
            return tables.mean(axis=0, dtype=np.float64).astype(start.dtype)

        table = EpochTable(lambda data, steps: None, mean)
        yield from train_epochs(
            problem,
            batches,
            update,
            workers=workers,
            timer=timer,
            work=work,
            table=table,
        )


def worker_order(order: Order, worker: Worker) -> Order:
    """Return the order of the blocks of one worker."""
    visits = order.visits[worker.index :: worker.count]
    steps = len(visits) * order.batch
    if len(visits) and visits[-1] == order.visits[-1]:  # the last block may be short
        steps -= len(order.visits) * order.batch - order.steps
    return Order(np.ascontiguousarray(visits), order.batch, steps)
