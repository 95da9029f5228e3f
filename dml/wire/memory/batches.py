"""The loop of a worker over an epoch of batches, each of which ends with a barrier.

    block     e0 e1 e2 e3 e4 e5     Edges that share a row have the same worker, so each
    worker    0  1  0  0  1  1      row changes as if one worker took all edges in their
    rows      ┊ apart: later ┊      order: the bits of one (CYCLADES, Pan 2016).

Rows apart, which too many edges share, are read as they were when the batch began.
Their gradients wait on a board until the barrier. Then each row is changed by one
worker, by their sum in the edges' order. With all rows apart the method is a
synchronous minibatch.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from dml.wire.memory.atomics import meet
from dml.wire.memory.conflicts import Plan
from dml.wire.memory.lock_free import add_row, gather
from dml.wire.memory.source_hash import compiled


class Board(NamedTuple):
    """The plan, and the gradients of a batch; in shared memory."""

    plan: Plan
    grads: np.ndarray  # of each row of each edge, as edges.rows has them
    moves: np.ndarray  # uint8: has that edge of the batch a gradient?
    sums: np.ndarray  # of a row apart, as the table
    seen: np.ndarray  # uint8: has that row a sum?


@functools.cache
def batches(model: Any) -> Callable[..., tuple]:
    """Compile the loop for a model; it returns the summed loss and the rows changed."""

    @compiled(model)
    def batches(state, data, order, worker, pace, board):
        table, edges, plan = state.table, data.edges, board.plan
        velocity = state.velocity.reshape(-1)
        total = np.empty((1, *table.shape[1:]), table.dtype)
        mine = np.empty(len(plan.apart), np.uint32)
        at_once = len(plan.slots) == 0
        # where all rows are apart, all gradients are those of the batch's first step
        stride = 0 if plan.apart.all() else 1
        loss, changed = 0.0, 0
        for position in range(len(order.visits)):
            block = order.visits[position]
            base, part = block * order.batch, block * worker.count + worker.me
            for e in plan.edges[plan.starts[part] : plan.starts[part + 1]]:
                t = position * order.batch + stride * (e - base)
                first, last = edges.starts[e], edges.starts[e + 1]
                slot = first - edges.starts[base]
                grads = board.grads[slot : slot + last - first]
                lost, moves = model.gradient(table, data, e, t, grads)
                loss += lost
                board.moves[e - base] = moves
                for s in range(last - first if moves else 0):
                    r = edges.rows[first + s]
                    if not plan.apart[r]:
                        changed += 1
                        if velocity.size:
                            gather(velocity, r, grads, s, pace.momentum)
                        model.move(table, r, grads, s, pace.rate)
                        add_row(table, r, grads, s)
            meet(state.sync.flags, worker.me, worker.count)
            if at_once:
                continue
            rows = sum_up(board, edges, (base, order.batch), worker, mine)
            for r in mine[:rows]:
                total[0] = board.sums[r]
                board.sums[r] = 0
                board.seen[r] = False
                if velocity.size:
                    gather(velocity, r, total, 0, pace.momentum)
                model.move(table, r, total, 0, pace.rate)
                add_row(table, r, total, 0)
            changed += rows
            meet(state.sync.flags, worker.me, worker.count)
        return loss, changed

    return batches


@njit(nogil=True, cache=True)
def sum_up(board, edges, batch, worker, mine):
    """Sum the gradients of a worker's rows apart, in the edges' order.

    Return the number of rows with gradients; they are the first of mine.
    """
    (base, size), plan = batch, board.plan
    origin, count = edges.starts[base], 0
    for e in range(base, min(base + size, len(edges.starts) - 1)):
        if not board.moves[e - base]:
            continue
        cell, first = e * worker.count + worker.me, edges.starts[e]
        for s in plan.slots[plan.later[cell] : plan.later[cell + 1]]:
            r = edges.rows[first + s]
            if not board.seen[r]:
                board.seen[r] = True
                mine[count] = r
                count += 1
            add_row(board.sums, r, board.grads, first - origin + s)
    return count
