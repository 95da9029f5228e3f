"""AIG (Niu 2011): HOGWILD! with locks of the rows that an edge changes.

    rows     1  4  7      Each row has a lock. Locks are acquired from the lowest row to
    edge e   🔒 🔒         the highest, so that no two workers wait for each other.
    edge f      ⏳ ·

No change is lost. Reads are lock-free. In addition to its |e| rows, edge e writes 2|e|
lock values.
"""

from numba import njit

from dml.wire.memory.atomics import acquire, release
from dml.wire.memory.hogwild import STEPS, add, enter

__all__ = ["STEPS", "add", "before_changes", "enter", "leave"]


@njit(nogil=True, cache=True)
def before_changes(sync, edges, e, t, moves):
    """Acquire the locks of the rows of the edge, lowest row first."""
    if moves:
        for k in range(edges.starts[e], edges.starts[e + 1]):
            acquire(sync.locks, edges.rows[k])


@njit(nogil=True, cache=True)
def leave(sync, edges, e, t, moves):
    """Release the locks of the rows of the edge."""
    if moves:
        for k in range(edges.starts[e], edges.starts[e + 1]):
            release(sync.locks, edges.rows[k])
