"""A worker's way through an epoch of batches, after each of which all meet.

    block     e0 e1 e2 e3 e4 e5     Edges that share a row have the same worker, so each
    worker    0  1  0  0  1  1      row changes as if one worker took all edges in their
    rows      ┊ apart: later ┊      order: the bits of one (CYCLADES, Pan 2016).

Rows apart, which too many edges share, are read as they were when the batch began.
Their gradients wait on a board until all have met, are summed in the edges' order and
applied, each row by one worker. With all rows apart it is a synchronous minibatch.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from dml.wire.memory.atomics import meet
from dml.wire.memory.free import gather


class Board(NamedTuple):
    """Where all workers see the gradients of a batch; in shared memory."""

    grads: np.ndarray  # of each row of each edge, as edges.rows has them
    moves: np.ndarray  # uint8: has that edge of the batch a gradient?


@functools.cache
def batches(model: Any, stamp: int) -> Callable[..., tuple]:
    """Compile the loop for a model; return the summed loss, and the rows changed."""

    @njit(nogil=True, cache=True)
    def batches(state, data, order, worker, pace, sync, plan, board):
        table, edges = state.table, data.edges
        velocity = state.velocity.reshape(-1)
        total = np.empty((1, *table.shape[1:]), table.dtype)
        at_once = len(plan.later_rows) == 0
        # who changes all rows later computes all gradients at the batch's first step
        later_all = plan.apart.all()
        loss, changed = 0.0, 0
        for position in range(len(order.visits)):
            block = order.visits[position]
            part = block * worker.count + worker.me
            base = block * order.batch
            for e in plan.edges[plan.starts[part] : plan.starts[part + 1]]:
                t = position * order.batch + (0 if later_all else e - base)
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
                        put(table, r, grads, s)
            meet(sync.flags, worker.me, worker.count)
            if at_once:
                continue
            for j in range(plan.later_starts[part], plan.later_starts[part + 1]):
                r = plan.later_rows[j]
                span = plan.entry_starts[j], plan.entry_starts[j + 1]
                if sum_up(total, board, plan, span):
                    changed += 1
                    if velocity.size:
                        gather(velocity, r, total, 0, pace.momentum)
                    model.move(table, r, total, 0, pace.rate)
                    put(table, r, total, 0)
            meet(sync.flags, worker.me, worker.count)
        return loss, changed, stamp

    return batches


@njit(nogil=True, cache=True)
def put(table, r, grads, s):
    """Add grads[s] to row r."""
    if table.ndim == 1:
        table[r] += grads[s]
    else:
        for d in range(table.shape[1]):
            table[r, d] += grads[s, d]


@njit(nogil=True, cache=True)
def sum_up(total, board, plan, span):
    """total[0] ← the gradients of a row, in the edges' order; say if there are any."""
    total[0] = 0
    some = False
    for k in range(span[0], span[1]):
        if board.moves[plan.entry_edges[k]]:
            some = True
            total[0] += board.grads[plan.entry_slots[k]]
    return some
