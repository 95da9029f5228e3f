"""A worker's loop over an epoch of blocks with barriers: CYCLADES (Pan 2016).

    block     e0 e1 e2 e3 e4 e5     Edges that share a row have the same worker, so rows
    worker    0  1  0  0  1  1      change as if one worker visited all edges in order:
    barrier   ┊deferred rows ┊      the result is bit-identical to serial descent.

An edge is an example with the rows that it uses. Changes of rows that too many edges
share, the deferred rows, are made at the end of the block. During
the block they keep their values from its start, and their gradients are stored in a
`Board`. After the barrier each deferred row is changed by one worker, by the sum of its
gradients in the order of edges. If all rows are deferred, the method is synchronous
minibatch SGD.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from dml.compiled import compile_loop
from dml.wire.memory.atomics import barrier
from dml.wire.memory.conflicts import Plan
from dml.wire.memory.lock_free import add_row, apply_momentum


class Board(NamedTuple):
    """The plan, and the gradients of a block, in shared memory."""

    plan: Plan
    grads: np.ndarray  # gradients of the rows of edges, in the order of edges.rows
    moves: np.ndarray  # uint8, by edge: whether it changes its rows
    sums: np.ndarray  # summed gradients of deferred rows, shaped as the table
    seen: np.ndarray  # uint8, by row: whether it has a sum


@functools.cache
def batch_loop(model: Any) -> Callable[..., tuple]:
    """Compile the loop for a model, which is a module.

    The loop returns the summed loss and the number of changed rows.
    """

    @compile_loop(model)
    def batch_loop(state, data, order, worker, settings, board):
        table, edges, plan = state.table, data.edges, board.plan
        velocity = state.velocity.reshape(-1)
        total = np.empty((1, *table.shape[1:]), table.dtype)
        owned = np.empty(len(plan.deferred), np.uint32)
        none_deferred = len(plan.slots) == 0
        # if all rows are deferred, a block is one step, numbered by its first edge
        stride = 0 if plan.deferred.all() else 1
        loss, changed = 0.0, 0
        for position in range(len(order.visits)):
            block = order.visits[position]
            base, part = block * order.batch, block * worker.count + worker.index
            for e in plan.edges[plan.starts[part] : plan.starts[part + 1]]:
                t = position * order.batch + stride * (e - base)
                first, last = edges.starts[e], edges.starts[e + 1]
                slot = first - edges.starts[base]
                grads = board.grads[slot : slot + last - first]
                edge_loss, moves = model.gradient(table, data, e, t, grads)
                loss += edge_loss
                board.moves[e - base] = moves
                for s in range(last - first if moves else 0):
                    r = edges.rows[first + s]
                    if not plan.deferred[r]:
                        changed += 1
                        if velocity.size:
                            apply_momentum(velocity, r, grads, s, settings.momentum)
                        model.move(table, r, grads, s, settings.rate)
                        add_row(table, r, grads, s)
            barrier(state.sync.flags, worker.index, worker.count)
            if none_deferred:
                continue
            rows = sum_up(board, edges, (base, order.batch), worker, owned)
            for r in owned[:rows]:
                total[0] = board.sums[r]
                board.sums[r] = 0
                board.seen[r] = False
                if velocity.size:
                    apply_momentum(velocity, r, total, 0, settings.momentum)
                model.move(table, r, total, 0, settings.rate)
                add_row(table, r, total, 0)
            changed += rows
            barrier(state.sync.flags, worker.index, worker.count)
        return loss, changed

    return batch_loop


@njit(nogil=True, cache=True)
def sum_up(board, edges, batch, worker, owned):
    """Sum the gradients of a worker's deferred rows, in the order of edges.

    Write the rows with gradients to `owned`, and return their number.
    """
    (base, size), plan = batch, board.plan
    origin, count = edges.starts[base], 0
    for e in range(base, min(base + size, len(edges.starts) - 1)):
        if not board.moves[e - base]:
            continue
        cell, first = e * worker.count + worker.index, edges.starts[e]
        for s in plan.slots[plan.slot_starts[cell] : plan.slot_starts[cell + 1]]:
            r = edges.rows[first + s]
            if not board.seen[r]:
                board.seen[r] = True
                owned[count] = r
                count += 1
            add_row(board.sums, r, board.grads, first - origin + s)
    return count
