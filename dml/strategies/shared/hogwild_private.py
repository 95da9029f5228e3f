"""HOGWILD! with private sums of the changes of hot rows, which many examples share.

    worker 0   e0 e3 e1 │ e8 …      cold rows: changed in the shared table
    worker 1   e5 e2 e7 │ e4 …      hot rows: changes are summed in private memory, and
                        └ exchange  added to the shared table after `period` edges

On text, few frequent words are in most documents. Under `hogwild` their cache lines
move between the cores at every update, so that two workers are hardly faster than one.
With one worker and a period of 1 the result is bit-identical to serial descent.
Elements sent per Step: an all-reduce of the losses and the number of changed rows.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import numpy as np

from dml.metrics.timer import Timer
from dml.strategies.shared.workers import (
    Descent,
    Workers,
    allocate_gradients,
    shared_table,
    train_epochs,
)
from dml.types import CountedComm, Problem, Step
from dml.types.ranges import Every, Threads, checked
from dml.wire.memory import state as memory
from dml.wire.memory.private import hot_rows, private_loop
from dml.wire.memory.state import EpochSettings, Order, Worker


@checked
def hogwild_private(
    problem: Problem,
    batches: Iterable[Order],
    update: Descent,
    *,
    comm: CountedComm,
    timer: Timer,
    hot: np.ndarray,
    period: Every = 256,
    threads: Threads = 1,
) -> Iterator[Step]:
    """Train on one table; yield a Step per epoch.

    Args:
      problem: Problem to train, equal on all ranks; it needs a kernel with a model.
      batches: Order of each epoch, equal on all ranks.
      update: Learning rates and momentum.
      comm: Ranks, all on one host.
      timer: Measures the phases.
      hot: Mask of the rows whose changes are summed in private memory.
      period: Number of edges of a worker after which the sums are added to the table.
      threads: Number of workers of each rank.
    """
    with closing(Workers(comm, threads, problem.examples)) as workers:
        momentum = bool(update.momentum)
        state = memory.state(
            problem.params, workers.count, momentum, False, workers.allocate
        )
        table = shared_table(problem, state, workers)
        descend = private_loop(problem.kernel.model)
        private = {
            worker.index: hot_rows(state.table, hot, period) for worker in workers.local
        }
        grads = {worker.index: allocate_gradients(problem) for worker in workers.local}

        def work(
            data: Any, order: Order, settings: EpochSettings, worker: Worker
        ) -> Any:
            index = worker.index
            return descend(
                state, data, order, worker, settings, grads[index], private[index]
            )

        yield from train_epochs(
            problem,
            batches,
            update,
            workers=workers,
            timer=timer,
            work=work,
            table=table,
        )
