"""A worker's loop with private changes of hot rows, which many examples share.

    cold rows   changed in the shared table by every edge, without a lock (HOGWILD!)
    hot rows    their changes are summed in private memory; after a period of edges the
                worker adds the sums to the shared table

An edge is an example with the rows that it uses. All rows are read from the shared
table, so a worker sees its own changes of hot rows, and those of others, after a period
at the latest. A cache line that several workers write moves between their cores at
every write. With a period of k edges a hot row moves at most once per k edges.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from dml.compiled import compile_loop
from dml.wire.memory.atomics import prefetch_for_write
from dml.wire.memory.lock_free import add_row, apply_momentum


class HotRows(NamedTuple):
    """The hot rows, and the changes of them that a worker keeps private.

    Attributes:
      mask: Whether each row is hot.
      rows: Indices of the hot rows.
      period: Number of edges after which the changes are added to the table.
      changes: Sums of changes since the last exchange, shaped like the table.
    """

    mask: np.ndarray
    rows: np.ndarray
    period: int
    changes: np.ndarray


def hot_rows(table: np.ndarray, mask: np.ndarray, period: int) -> HotRows:
    """Allocate the private memory of a worker.

    Args:
      table: The shared table.
      mask: Whether each row is hot.
      period: Number of edges after which the changes are added to the table.
    """
    return HotRows(mask, np.flatnonzero(mask), period, np.zeros_like(table))


@functools.cache
def private_loop(model: Any) -> Callable[..., tuple]:
    """Compile the loop for a model, which is a module.

    The loop returns the summed loss and the number of changed rows.
    """

    @compile_loop(model)
    def private_loop(state, data, order, worker, settings, grads, hot):
        table, edges = state.table, data.edges
        flat, velocity = table.reshape(-1), state.velocity.reshape(-1)
        width = flat.size // len(table)
        steps, batch = order.steps, order.batch
        loss, changed, edges_of_period = 0.0, 0, 0
        for start in range(worker.index * batch, steps, worker.count * batch):
            e = order.visits[start // batch] * batch
            for t in range(start, min(start + batch, steps)):
                edge_loss, moves = model.gradient(table, data, e, t, grads)
                loss += edge_loss
                if moves:
                    rows = edges.rows[edges.starts[e] : edges.starts[e + 1]]
                    changed += len(rows)
                    if worker.count > 1:
                        # request all cache lines before the first store
                        for r in rows:
                            if not hot.mask[r]:
                                prefetch_for_write(flat, r * width)
                    for s in range(len(rows)):
                        r = rows[s]
                        if velocity.size:
                            apply_momentum(velocity, r, grads, s, settings.momentum)
                        model.move(table, r, grads, s, settings.rate)
                        if hot.mask[r]:
                            add_row(hot.changes, r, grads, s)
                        else:
                            add_row(table, r, grads, s)
                e += 1
                edges_of_period += 1
                if edges_of_period == hot.period:
                    add_changes(table, hot)
                    edges_of_period = 0
        add_changes(table, hot)
        return loss, changed

    return private_loop


@njit(nogil=True, cache=True)
def add_changes(table, hot):
    """Add the changes of the hot rows to the table, and clear them."""
    for r in hot.rows:
        if is_changed(hot.changes, r):
            add_row(table, r, hot.changes, r)
            hot.changes[r] = 0


@njit(nogil=True, cache=True)
def is_changed(changes, r):
    """Return whether row r has a change; adding zeros would move its cache line."""
    if changes.ndim == 1:
        return changes[r] != 0
    return np.any(changes[r] != 0)
