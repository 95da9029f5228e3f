"""The loop of a simulated HOGWILD! on one core, with prescribed delays of reads.

    update       … t-3  t-2  t-1   t      Update t reads each of its rows as it was
    row 7 read              ▲             before update t - τ, and changes the current
    row 9 read         ▲                  table (Mania 2015).

τ is the delay of the read, in updates. All delays are prescribed, so runs with equal
delays are bit-identical.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from dml.compiled import compile_loop
from dml.types import Edges
from dml.wire.memory.lock_free import add_row, apply_momentum


class DelayedTable(NamedTuple):
    """A table, and the values of its rows before each of the latest updates.

    The change of the s-th row of update u has the number u · width + s, where width is
    the number of rows of the longest edge. Its place in the ring buffers is the number
    modulo their length. The changes of a row are a linked list, newest first.
    """

    table: np.ndarray  # the current rows
    velocity: np.ndarray  # shaped as the table; empty without momentum
    before: np.ndarray  # ring buffer: the row before the change
    previous: np.ndarray  # ring buffer: number of the previous change of the row
    last: np.ndarray  # number of the latest change of each row; -1: none
    stale: np.ndarray  # shaped as the table; valid in the rows that an update reads
    grads: np.ndarray  # gradients of the rows of one edge: `width` rows


def delayed_table(
    table: np.ndarray, edges: Edges, max_delay: int, momentum: bool
) -> DelayedTable:
    """Return the state of `delayed_loop`.

    Args:
      table: Initial rows; changed in place.
      edges: Edges of all updates.
      max_delay: Largest delay, in updates.
      momentum: Whether to allocate a velocity.
    """
    width = max(1, int(np.diff(edges.starts).max(initial=0)))
    places = max(1, max_delay) * width

    def zeros(length: int) -> np.ndarray:
        return np.zeros((length, *table.shape[1:]), table.dtype)

    return DelayedTable(
        table,
        velocity=zeros(len(table) if momentum else 0),
        before=zeros(places),
        previous=np.zeros(places, np.int64),
        last=np.full(len(table), -1),
        stale=np.zeros_like(table),
        grads=zeros(width),
    )


@functools.cache
def delayed_loop(model: Any) -> Callable[..., float]:
    """Compile the loop for a model, which is a module."""

    @compile_loop(model)
    def delayed_loop(state, data, edges, delays, clock, settings):
        """Visit the edges; return the summed loss.

        Args:
          state: A DelayedTable.
          data: Data of the model.
          edges: Indices of the edges to visit.
          delays: Delay of each row that is read, in the order of reads; at most the
            number of updates so far. Delays above the length of the ring buffers are
            reduced to it.
          clock: Number of updates of earlier calls.
          settings: Learning rate and momentum.
        """
        total, reads = 0.0, 0
        velocity = state.velocity.reshape(-1)
        for t in range(len(edges)):
            e, now = edges[t], clock + t
            first, last = data.edges.starts[e], data.edges.starts[e + 1]
            rows = data.edges.rows[first:last]
            recall(state, rows, now, delays[reads : reads + len(rows)])
            reads += len(rows)
            loss, moves = model.gradient(state.stale, data, e, t, state.grads)
            total += loss
            if moves:
                for s in range(len(rows)):
                    if velocity.size:
                        apply_momentum(
                            velocity, rows[s], state.grads, s, settings.momentum
                        )
                    # the table, not `stale`: a projection applies to the current row
                    model.move(state.table, rows[s], state.grads, s, settings.rate)
                    change(state, rows[s], s, now)
        return total

    return delayed_loop


@njit(nogil=True, cache=True)
def recall(state, rows, now, delays):
    """Copy the values that the rows had before update now - delay to `stale`."""
    width, places = len(state.grads), len(state.previous)
    for s in range(len(rows)):
        # the ring buffers have only the latest places // width updates
        r, oldest = rows[s], (now - min(delays[s], places // width)) * width
        number, place = state.last[r], -1
        while number >= max(oldest, 0):
            place = number % places
            number = state.previous[place]
        if place < 0:
            put(state.stale, r, state.table, r)
        else:
            put(state.stale, r, state.before, place)


@njit(nogil=True, cache=True)
def change(state, r, s, now):
    """Save the row for slot s of update `now` in the ring buffers, and change it."""
    number = now * len(state.grads) + s
    place = number % len(state.previous)
    put(state.before, place, state.table, r)
    state.previous[place], state.last[r] = state.last[r], number
    add_row(state.table, r, state.grads, s)


@njit(nogil=True, cache=True)
def put(target, i, rows, j):
    """Copy rows[j] to target[i], in a loop, which compiles faster than slices."""
    if target.ndim == 1:
        target[i] = rows[j]
    else:
        for d in range(target.shape[1]):
            target[i, d] = rows[j, d]
