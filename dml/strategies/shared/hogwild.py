"""Lock-free and locked descent on one table; without locks it is HOGWILD! (Niu 2011).

    blocks   5 2 0 4 1 3 …     Each worker takes its share of an epoch's blocks, and
    worker   0 1 0 1 0 1 …     changes rows that others read and write.

A worker waits as the locking policy says. Runs of several workers do not repeat. One
worker is serial descent, bit for bit, by every policy. Words a step: the losses, and
the rows changed.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from types import ModuleType
from typing import Any

import numpy as np

from dml.data.text.tiles import assign
from dml.metrics.timer import Timer
from dml.strategies.shared.workers import (
    Descent,
    Workers,
    epochs,
    gradients,
    one_table,
)
from dml.types import BadInput, CountedComm, Kernel, Problem, Step
from dml.wire.memory import hogwild as lock_free
from dml.wire.memory import state as memory
from dml.wire.memory.lock_free import free as compiled
from dml.wire.memory.state import Order, Pace, Worker


def hogwild(
    problem: Problem,
    batches: Iterable[Order],
    update: Descent,
    *,
    comm: CountedComm,
    timer: Timer,
    policy: ModuleType = lock_free,
    threads: int = 1,
    counting: bool = False,
    delay: int = 0,
) -> Iterator[Step]:
    """Train on one table; yield a Step an epoch.

    problem: the problem, equal on all ranks; it needs a kernel.
    batches: the order of each epoch, equal on all ranks.
    update: rates and momentum.
    comm: the ranks, all on one host.
    timer: measures the phases.
    policy: a locking policy of wire.memory: hogwild, atomic, locked, whole,
        round_robin. Problems with a fused kernel have the first one only.
    threads: workers of each rank.
    counting: whether lost changes of rows are measured.
    delay: reads of a number that each gradient takes longer.
    """
    kernel = problem.kernel
    plain = policy is lock_free and not (update.momentum or counting or delay)
    if kernel.fused and not plain:
        raise BadInput(
            "expected no locks, no momentum, no counts and no delay with a fused "
            "kernel, got some; leave them out"
        )
    with closing(Workers(comm, threads, problem.examples)) as crew:
        state = memory.state(
            problem.params, crew.count, bool(update.momentum), counting, crew.allocate
        )
        table = one_table(problem, state, crew)
        if kernel.fused:

            def fused(data: Any, order: Order, pace: Pace, worker: Worker) -> Any:
                shares = dealt(kernel, order, worker) if order.steps else [order.visits]
                return [kernel.fused(state.table, data, s, pace.rate) for s in shares]

            yield from epochs(problem, batches, update, crew, timer, fused, table, ())
            return
        descend = compiled(kernel.model, policy)
        grads = {worker.me: gradients(problem) for worker in crew.mine}

        def work(data: Any, order: Order, pace: Pace, worker: Worker) -> Any:
            return descend(state, data, order, worker, pace, grads[worker.me])

        def clear() -> None:
            state.hits[:] = 0
            state.sync.turn[:] = 0

        def lost(sums: np.ndarray) -> dict[str, float]:
            return {"rows_lost": sums[1] - float(state.hits.sum(dtype=np.int64))}

        table = table._replace(clear=clear)
        if counting:
            table = table._replace(measure=lost)
        yield from epochs(
            problem, batches, update, crew, timer, work, table, delay=delay
        )


def dealt(kernel: Kernel, order: Order, worker: Worker) -> list[np.ndarray]:
    """Return a worker's blocks of each part; all workers have about equal examples.

    The blocks of all parts are dealt together, as a part may have fewer blocks than
    there are workers.
    """
    sizes = kernel.sizes[order.visits]
    owner = np.empty(len(sizes), np.int64)
    loads = np.zeros(worker.count)
    assign(np.argsort(-sizes, kind="stable"), sizes, loads, owner)
    return [
        order.visits[first:last][owner[first:last] == worker.me]
        for first, last in zip(order.bounds[:-1], order.bounds[1:], strict=True)
    ]
