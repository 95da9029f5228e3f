"""Ways in which workers update one table as they go: a guard says what each waits for.

No two runs of several workers are alike. One worker alone is serial, bit for bit, by
all of them. Words a step: the loss, and the rows changed.
"""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

from dml.metrics.timer import Timer
from dml.strategies.sparse.workers import (
    Settings,
    Sparse,
    Workers,
    epochs,
    fitting,
    one_table,
    room,
)
from dml.types import Step
from dml.wire.memory import state as memory
from dml.wire.memory.free import free as kernel


def free(
    problem: Sparse,
    settings: Settings,
    timer: Timer,
    *,
    crew: Workers,
    guard: ModuleType,
) -> Iterator[Step]:
    """Train by a guard of wire.memory: hogwild, atomic, locked, whole, round_robin."""
    fitting(problem, settings, crew)
    start = problem.start
    state = memory.state(
        start, crew.count, bool(settings.momentum), settings.counting, crew.allocate
    )
    descend = kernel(problem.model, guard)
    table = one_table(problem, state, crew)
    rooms = {worker.me: room(problem) for worker in crew.mine}

    def work(data: Any, *rest: Any) -> tuple[float, float]:
        order, pace, worker = rest
        grads = rooms[worker.me]
        return descend(state, data, order, worker, pace, grads)[:2]

    def clear() -> None:
        state.hits[:] = 0
        state.sync.turn[:] = 0

    def lost(sums: np.ndarray) -> dict[str, float]:
        return {"rows_lost": sums[1] - float(state.hits.sum(dtype=np.int64))}

    table = table._replace(clear=clear)
    if settings.counting:
        table = table._replace(measure=lost)
    return epochs(problem, settings, crew, timer, work, table)
