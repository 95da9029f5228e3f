"""Lock-free and locked descent on one table; without locks it is HOGWILD! (Niu 2011).

    blocks   5 2 0 4 1 3 …     Each worker visits a part of the blocks of an epoch, and
    worker   0 1 0 1 0 1 …     changes rows that other workers read and write.

The locking policy determines when a worker waits. Runs of several workers are not
reproducible. With one worker, every policy is bit-identical to serial descent. Elements
sent per Step: an all-reduce of the losses and the number of changed rows.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from dml.data.text.tiles import assign_words
from dml.metrics.timer import Timer
from dml.strategies.shared.workers import (
    Descent,
    Workers,
    allocate_gradients,
    shared_table,
    train_epochs,
)
from dml.types import BadInput, CountedComm, Kernel, Problem, Step
from dml.types.ranges import Threads, Updates, checked
from dml.wire.memory import hogwild as hogwild_policy
from dml.wire.memory import state as memory
from dml.wire.memory.lock_free import lock_free_loop
from dml.wire.memory.state import EpochSettings, Order, State, Worker


@checked
def hogwild(
    problem: Problem,
    batches: Iterable[Order],
    update: Descent,
    *,
    comm: CountedComm,
    timer: Timer,
    policy: ModuleType = hogwild_policy,
    threads: Threads = 1,
    counting: bool = False,
    delay: Updates = 0,
) -> Iterator[Step]:
    """Train on one table; yield a Step per epoch.

    Args:
      problem: Problem to train, equal on all ranks; it needs a kernel.
      batches: Order of each epoch, equal on all ranks.
      update: Learning rates and momentum.
      comm: Ranks, all on one host.
      timer: Measures the phases.
      policy: Locking policy, a module of wire.memory: hogwild, atomic, locked,
        global_lock or round_robin. A fused kernel supports only hogwild.
      threads: Number of workers of each rank.
      counting: Whether to count the changes of rows that other workers overwrite.
      delay: Number of extra memory reads per gradient, to simulate a slower gradient.
    """
    kernel = problem.kernel
    plain = policy is hogwild_policy and not (update.momentum or counting or delay)
    if kernel.fused and not plain:
        raise BadInput(
            "expected no locks, no momentum, no counting and no delay with a fused "
            "kernel, got at least one of them; delete these options"
        )
    with closing(Workers(comm, threads, problem.examples)) as workers:
        state = memory.state(
            problem.params,
            workers.count,
            bool(update.momentum),
            counting,
            workers.allocate,
        )
        counts: tuple[str, ...] = ("rows_changed",)
        table = shared_table(problem, state, workers)
        if kernel.fused:
            work, counts = fused_work(kernel, state), ()
        else:
            work = edge_work(problem, state, workers, policy)
            table = table._replace(clear=partial(clear, state))
        if counting:
            table = table._replace(measure=partial(rows_lost, state))
        yield from train_epochs(
            problem,
            batches,
            update,
            workers=workers,
            timer=timer,
            work=work,
            table=table,
            counts=counts,
            delay=delay,
        )


Work = Callable[[Any, Order, EpochSettings, Worker], Any]  # see `train_epochs`


def fused_work(kernel: Kernel, state: State) -> Work:
    """Return the work of a worker by a fused kernel; its result is a list of losses."""
    fused = kernel.fused
    assert fused

    def work(data: Any, order: Order, settings: EpochSettings, worker: Worker) -> Any:
        parts = worker_blocks(kernel, order, worker) if order.steps else [order.visits]
        return [fused(state.table, data, blocks, settings.rate) for blocks in parts]

    return work


def edge_work(
    problem: Problem, state: State, workers: Workers, policy: ModuleType
) -> Work:
    """Return the work of a worker, edge by edge, by a locking policy.

    Args:
      problem: Problem with a model in its kernel.
      state: State with the shared table.
      workers: Workers of all ranks.
      policy: Locking policy, a module of wire.memory.
    """
    descend = lock_free_loop(problem.kernel.model, policy)
    grads = {worker.index: allocate_gradients(problem) for worker in workers.local}

    def work(data: Any, order: Order, settings: EpochSettings, worker: Worker) -> Any:
        return descend(state, data, order, worker, settings, grads[worker.index])

    return work


def clear(state: State) -> None:
    """Reset the counters of an epoch."""
    state.hits[:] = 0
    state.sync.turn[:] = 0


def rows_lost(state: State, sums: np.ndarray) -> dict[str, float]:
    """Return the number of changes of rows that other workers overwrote.

    sums: sums over workers of the loss and the number of changed rows.
    """
    return {"rows_lost": sums[1] - float(state.hits.sum(dtype=np.int64))}


def worker_blocks(kernel: Kernel, order: Order, worker: Worker) -> list[np.ndarray]:
    """Return the blocks of a worker in each part of an epoch.

    All workers have about equal numbers of examples in the epoch. They may differ in a
    part, as a part may have fewer blocks than there are workers.
    """
    sizes = kernel.sizes[order.visits]
    owner = np.empty(len(sizes), np.int64)
    loads = np.zeros(worker.count)
    assign_words(np.argsort(-sizes, kind="stable"), sizes, loads, owner)
    return [
        order.visits[first:last][owner[first:last] == worker.index]
        for first, last in zip(order.bounds[:-1], order.bounds[1:], strict=True)
    ]
