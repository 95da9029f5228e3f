"""CYCLADES (Pan 2016) and synchronous minibatches: the same bits on any workers.

    plan   block 0: worker 0 ▯▯▯  worker 1 ▯▯     made once: blocks keep their edges,
           block 1: worker 0 ▯▯   worker 1 ▯▯▯    epochs visit them in a new order

Both are serial descent in the epoch's order: but rows apart change at a batch's end, of
minibatches all rows do. Words a step: the loss, and the rows changed.
"""

from collections.abc import Iterator
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
)
from dml.types import Step
from dml.wire.memory import state as memory
from dml.wire.memory.batches import Board
from dml.wire.memory.batches import batches as kernel
from dml.wire.memory.conflicts import Plan, plan
from dml.wire.memory.shared import place


def batched(
    problem: Sparse,
    settings: Settings,
    timer: Timer,
    *,
    crew: Workers,
    apart: np.ndarray,
) -> Iterator[Step]:
    """Train batch after batch; apart are the rows whose changes wait for its end."""
    fitting(problem, settings, crew)
    start, edges = problem.start, problem.data.edges
    with timer("plan"):
        made = place(crew.comm, lambda: plan(edges, settings.batch, crew.count, apart))
    board = pinboard(problem, settings, crew, made)
    momentum = bool(settings.momentum)
    state = memory.state(start, crew.count, momentum, False, crew.allocate)
    descend = kernel(problem.model)
    table = one_table(problem, state, crew)

    def work(data: Any, *rest: Any) -> tuple[float, float]:
        order, pace, worker = rest
        return descend(state, data, order, worker, pace, board)[:2]

    return epochs(problem, settings, crew, timer, work, table)


def pinboard(problem: Sparse, settings: Settings, crew: Workers, plan: Plan) -> Board:
    """Make room for all gradients of a batch, and for sums, where rows are apart."""
    starts, start = problem.data.edges.starts, problem.start
    bounds = np.append(starts[: -1 : settings.batch], starts[-1])
    most, rows = int(np.diff(bounds).max()), len(start) if plan.apart.any() else 0

    def room(length: int) -> np.ndarray:
        found = crew.allocate(length * start[0].size, start.dtype)
        return found.reshape(length, *start.shape[1:])

    moves, seen = (crew.allocate(size, np.uint8) for size in (settings.batch, rows))
    return Board(plan, room(most), moves, room(rows), seen)
