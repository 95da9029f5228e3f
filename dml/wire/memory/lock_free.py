"""The loop of a worker over an epoch without barriers, edge by edge.

blocks   5 2 0 4 1 3     An edge is an example with the rows that it uses. Blocks of
worker   0 1 0 1 0 1     edges are visited in a random order and assigned to workers
                         cyclically. Functions of a locking policy run before the
                         reads, before the changes and after the changes.
"""

import functools
from collections.abc import Callable
from typing import Any

from numba import njit

from dml.compiled import compile_loop
from dml.wire.memory.atomics import prefetch_for_write, spin


@functools.cache
def lock_free_loop(model: Any, policy: Any) -> Callable[..., tuple]:
    """Compile the loop for a model and a locking policy, which are modules.

    The loop returns the summed loss and the number of changed rows.
    """

    @compile_loop(model, policy)
    def lock_free_loop(state, data, order, worker, settings, grads):
        table, edges, sync = state.table, data.edges, state.sync
        flat, velocity = table.reshape(-1), state.velocity.reshape(-1)
        width = flat.size // len(table)
        steps, batch = order.steps, order.batch
        run = policy.STEPS or batch  # consecutive steps of a worker
        loss, changed = 0.0, 0
        for start in range(worker.index * run, steps, worker.count * run):
            e = order.visits[start // batch] * batch + start % batch
            for t in range(start, min(start + run, steps)):
                policy.enter(sync, edges, e)
                edge_loss, moves = model.gradient(table, data, e, t, grads)
                loss += edge_loss
                spin(sync.flags, settings.delay)
                policy.before_changes(sync, edges, e, t, moves)
                if moves:
                    # a slice: numba then does not check for negative indices
                    rows = edges.rows[edges.starts[e] : edges.starts[e + 1]]
                    changed += len(rows)
                    if worker.count > 1:
                        # request all cache lines before the first store
                        for r in rows:
                            prefetch_for_write(flat, r * width)
                    for s in range(len(rows)):
                        r = rows[s]
                        if velocity.size:
                            apply_momentum(velocity, r, grads, s, settings.momentum)
                        model.move(table, r, grads, s, settings.rate)
                        if grads.ndim == 1:
                            policy.add(flat, r, grads[s])
                        else:
                            for d in range(width):
                                policy.add(flat, r * width + d, grads[s, d])
                        if state.hits.size:
                            policy.add(state.hits, r, 1)
                policy.leave(sync, edges, e, t, moves)
                e += 1
        return loss, changed

    return lock_free_loop


@njit(nogil=True, cache=True)
def apply_momentum(velocity, r, grads, s, momentum):
    """Set v[r] to momentum v[r] + grads[s] (Polyak), and grads[s] to v[r]."""
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
    """Add grads[s] to sums[r]."""
    if sums.ndim == 1:
        sums[r] += grads[s]
    else:
        for d in range(sums.shape[1]):
            sums[r, d] += grads[s, d]
