"""Runs of each worker on its own table, averaged at the end (Zinkevich 2010).

    worker 0   blocks 5 0 1   w_0 ─┐
    worker 1   blocks 2 4 3   w_1 ─┴─► (w_0 + w_1) / 2      nobody waits before that

p tables in memory instead of one. Words a step: the loss, and the rows changed.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dml.metrics.timer import Timer
from dml.strategies.sparse.workers import (
    Settings,
    Sparse,
    Table,
    Workers,
    epochs,
    fitting,
    room,
)
from dml.types import Step
from dml.wire.memory import hogwild
from dml.wire.memory import state as memory
from dml.wire.memory.free import free as kernel
from dml.wire.memory.state import Order, Worker


def average(
    problem: Sparse, settings: Settings, timer: Timer, *, crew: Workers
) -> Iterator[Step]:
    """Train every worker on its blocks alone; a Step gives the mean of all tables."""
    fitting(problem, settings, crew)
    start, model = problem.start, problem.model
    shape = (crew.count, *start.shape)
    tables = crew.allocate(crew.count * start.size, start.dtype).reshape(shape)
    momentum = bool(settings.momentum)
    mine = [memory.state(start, 1, momentum, False, np.zeros) for _ in crew.mine]
    rooms = [room(problem) for _ in crew.mine]
    descend = kernel(model, hogwild)
    if crew.comm.rank == 0:
        tables[:] = start

    def work(data: Any, order: Order, *rest: Any) -> tuple[float, float]:
        pace, worker = rest
        order = share_of(order, worker)
        thread = worker.me % crew.threads
        own = mine[thread]._replace(table=tables[worker.me])
        only = Worker(0, 1)
        found = descend(own, data, order, only, pace, rooms[thread])[:2]
        for one in (own.table, own.velocity):
            model.settle(one, data, order.steps)
        return found

    def mean() -> np.ndarray:
        return tables.mean(axis=0, dtype=np.float64).astype(start.dtype)

    table = Table(lambda data: None, mean, lambda: None, lambda sums: {})
    return epochs(problem, settings, crew, timer, work, table)


def share_of(order: Order, worker: Worker) -> Order:
    """Return the blocks of an order that are a worker's, and their steps."""
    visits = order.visits[worker.me :: worker.count]
    steps = len(visits) * order.batch
    if len(visits) and visits[-1] == order.visits[-1]:  # the one that may be short
        steps -= len(order.visits) * order.batch - order.steps
    return Order(np.ascontiguousarray(visits), order.batch, steps)
