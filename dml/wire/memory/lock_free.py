"""The loop of a worker over an epoch without barriers: one edge after another.

blocks   5 2 0 4 1 3     The epoch visits blocks of edges in a drawn order. The workers
worker   0 1 0 1 0 1     take them by turns. A locking policy has the functions that run
                         before, between and after the reads and the changes of an edge.
"""

import functools
from collections.abc import Callable
from typing import Any

from numba import njit

from dml.wire.memory.atomics import claim, idle
from dml.wire.memory.source_hash import compiled


@functools.cache
def free(model: Any, policy: Any) -> Callable[..., tuple]:
    """Compile the loop for a model and a locking policy; both are modules.

    It returns the summed loss, and the number of rows that were changed.
    """

    @compiled(model, policy)
    def free(state, data, order, worker, pace, grads):
        table, edges, sync = state.table, data.edges, state.sync
        numbers, velocity = table.reshape(-1), state.velocity.reshape(-1)
        width = numbers.size // len(table)
        steps, batch = order.steps, order.batch
        run = policy.STEPS or batch
        loss, changed = 0.0, 0
        for start in range(worker.me * run, steps, worker.count * run):
            e = order.visits[start // batch] * batch + start % batch
            for t in range(start, min(start + run, steps)):
                policy.enter(sync, edges, e)
                lost, moves = model.gradient(table, data, e, t, grads)
                loss += lost
                idle(sync.flags, pace.delay)
                policy.turn(sync, edges, e, t, moves)
                if moves:
                    # a slice: numba then checks no index for a sign
                    rows = edges.rows[edges.starts[e] : edges.starts[e + 1]]
                    changed += len(rows)
                    if worker.count > 1:
                        # all cache lines together: stores request them one by one
                        for r in rows:
                            claim(numbers, r * width)
                    for s in range(len(rows)):
                        r = rows[s]
                        if velocity.size:
                            gather(velocity, r, grads, s, pace.momentum)
                        model.move(table, r, grads, s, pace.rate)
                        if grads.ndim == 1:
                            policy.add(numbers, r, grads[s])
                        else:
                            for d in range(width):
                                policy.add(numbers, r * width + d, grads[s, d])
                        if state.hits.size:
                            policy.add(state.hits, r, 1)
                policy.leave(sync, edges, e, t, moves)
                e += 1
        return loss, changed

    return free


@njit(nogil=True, cache=True)
def gather(velocity, r, grads, s, momentum):
    """v ← momentum v + grads (Polyak); grads ← v."""
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
