"""A worker's way through an epoch, where nobody waits for all: edge after edge.

blocks   5 2 0 4 1 3     The epoch visits blocks of edges in a drawn order, and the
worker   0 1 0 1 0 1     workers take them by turns. What one does before, between
                         and after reading and changing is its guard's to say.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any

from numba import njit

from dml.wire.memory.atomics import claim, idle
from dml.wire.memory.stamps import named, stamp


@functools.cache
def free(model: Any, guard: Any) -> Callable[..., tuple]:
    """Compile the loop for a model and a guard; both are modules.

    Returns the summed loss, and how many rows were changed.
    """
    mark = stamp(model, guard, sys.modules[__name__])

    @njit(nogil=True, cache=True)
    @named(model, guard)
    def free(state, data, order, worker, pace, grads):
        table, edges, sync = state.table, data.edges, state.sync
        numbers, velocity = table.reshape(-1), state.velocity.reshape(-1)
        width = numbers.size // len(table)
        steps, batch = order.steps, order.batch
        run = guard.STEPS or batch
        loss, changed = 0.0, 0
        for start in range(worker.me * run, steps, worker.count * run):
            e = order.visits[start // batch] * batch + start % batch
            for t in range(start, min(start + run, steps)):
                guard.enter(sync, edges, e)
                lost, moves = model.gradient(table, data, e, t, grads)
                loss += lost
                idle(sync.flags, pace.delay)
                guard.turn(sync, edges, e, t, moves)
                if moves:
                    # a slice: numba then asks of no index whether it is below 0
                    rows = edges.rows[edges.starts[e] : edges.starts[e + 1]]
                    changed += len(rows)
                    if worker.count > 1:
                        # all lines at once: stores ask for them one after another
                        for r in rows:
                            claim(numbers, r * width)
                    for s in range(len(rows)):
                        r = rows[s]
                        if velocity.size:
                            gather(velocity, r, grads, s, pace.momentum)
                        model.move(table, r, grads, s, pace.rate)
                        if grads.ndim == 1:
                            guard.add(numbers, r, grads[s])
                        else:
                            for d in range(width):
                                guard.add(numbers, r * width + d, grads[s, d])
                        if state.hits.size:
                            guard.add(state.hits, r, 1)
                guard.leave(sync, edges, e, t, moves)
                e += 1
        return loss, changed, mark

    return free


@njit(nogil=True, cache=True)
def gather(velocity, r, grads, s, momentum):
    """v ← momentum v + grads, Polyak's; it takes the gradient's place."""
    if grads.ndim == 1:
        grads[s] += momentum * velocity[r]
        velocity[r] = grads[s]
    else:
        width = grads.shape[1]
        for d in range(width):
            grads[s, d] += momentum * velocity[r * width + d]
            velocity[r * width + d] = grads[s, d]


@njit(nogil=True, cache=True)
def add_row(sums, r, grads, s):
    """sums[r] += grads[s]."""
    if sums.ndim == 1:
        sums[r] += grads[s]
    else:
        for d in range(sums.shape[1]):
            sums[r, d] += grads[s, d]
