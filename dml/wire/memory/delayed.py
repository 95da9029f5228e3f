"""The loop of a simulated HOGWILD!: one core, whose reads are late by given delays.

    update       … t-3  t-2  t-1   t      Update t reads each of its rows as it was
    row 7 read              ▲             before update t - τ, and adds what it finds
    row 9 read         ▲                  to the current table (Mania 2015).

The staleness of a read is a number, and a run repeats bit for bit.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from dml.types import Edges
from dml.wire.memory.lock_free import add_row, gather
from dml.wire.memory.source_hash import compiled


class Twin(NamedTuple):
    """A table, and the values of its rows before each of the last updates.

    The s-th row of update u has number u · width + s. Its place in the rings is the
    number modulo their length. The changes of a row are a linked list, newest first.
    """

    table: np.ndarray
    velocity: np.ndarray  # no rows where there is no momentum
    before: np.ndarray  # a ring: the row before the change
    previous: np.ndarray  # a ring: the number of the change to the same row before it
    last: np.ndarray  # of each row, the number of its latest change; -1: none
    stale: np.ndarray  # a table; only the rows that an update reads are valid
    grads: np.ndarray  # the rows of the longest edge: width


def twin(table: np.ndarray, edges: Edges, most: int, momentum: bool) -> Twin:
    """Allocate for delays of up to `most` updates; the table is changed in place."""
    width = max(1, int(np.diff(edges.starts).max(initial=0)))
    places = max(1, most) * width

    def room(length: int) -> np.ndarray:
        return np.zeros((length, *table.shape[1:]), table.dtype)

    return Twin(
        table,
        velocity=room(len(table) if momentum else 0),
        before=room(places),
        previous=np.zeros(places, np.int64),
        last=np.full(len(table), -1),
        stale=np.zeros_like(table),
        grads=room(width),
    )


@functools.cache
def kernel(model: Any) -> Callable[..., float]:
    """Compile the loop for a model, a module."""

    @compiled(model)
    def delayed(twin, data, edges, delays, clock, pace):
        """Visit the edges, after `clock` updates of earlier calls; return the loss.

        delays: one for each row that is read, in the order of reading; at most the
            updates so far. A longer delay than that of the rings is cut to theirs.
        """
        total, reads = 0.0, 0
        velocity = twin.velocity.reshape(-1)
        for t in range(len(edges)):
            e, now = edges[t], clock + t
            first, last = data.edges.starts[e], data.edges.starts[e + 1]
            rows = data.edges.rows[first:last]
            recall(twin, rows, now, delays[reads : reads + len(rows)])
            reads += len(rows)
            loss, moves = model.gradient(twin.stale, data, e, t, twin.grads)
            total += loss
            if moves:
                for s in range(len(rows)):
                    if velocity.size:
                        gather(velocity, rows[s], twin.grads, s, pace.momentum)
                    # the table, not stale: a projection starts from the current row
                    model.move(twin.table, rows[s], twin.grads, s, pace.rate)
                    change(twin, rows[s], s, now)
        return total

    return delayed


@njit(nogil=True, cache=True)
def recall(twin, rows, now, delays):
    """Copy the rows as they were before update now - delay to stale."""
    width, places = len(twin.grads), len(twin.previous)
    for s in range(len(rows)):
        # never further than the rings reach: older places hold newer changes
        r, oldest = rows[s], (now - min(delays[s], places // width)) * width
        number, found = twin.last[r], -1
        while number >= max(oldest, 0):
            found = number % places
            number = twin.previous[found]
        if found < 0:
            put(twin.stale, r, twin.table, r)
        else:
            put(twin.stale, r, twin.before, found)


@njit(nogil=True, cache=True)
def change(twin, r, s, now):
    """Save a row in the ring, and change it."""
    number = now * len(twin.grads) + s
    place = number % len(twin.previous)
    put(twin.before, place, twin.table, r)
    twin.previous[place], twin.last[r] = twin.last[r], number
    add_row(twin.table, r, twin.grads, s)


@njit(nogil=True, cache=True)
def put(into, i, rows, j):
    """Copy row j to row i; a loop, as slices take three times as long to compile."""
    if into.ndim == 1:
        into[i] = rows[j]
    else:
        for d in range(into.shape[1]):
            into[i, d] = rows[j, d]
