"""AIG (Niu 2011): lock an edge's rows, read, change, unlock.

    rows   1  4  7      Each row has its lock. All take them from the lowest row to the
    e      🔒 🔒         highest, so that no two wait for each other.
    f         ⏳ ·

Updates are as if one came after another, in some order. 2|e| writes an edge beside its
own.
"""

from numba import njit

from dml.wire.memory.atomics import acquire, release
from dml.wire.memory.hogwild import STEPS, add, turn

__all__ = ["STEPS", "add", "enter", "leave", "turn"]


@njit(nogil=True, cache=True)
def enter(sync, edges, e):
    """Take the edge's locks, lowest row first."""
    for k in range(edges.starts[e], edges.starts[e + 1]):
        acquire(sync.locks, edges.rows[k])


@njit(nogil=True, cache=True)
def leave(sync, edges, e, t):
    """Give them back."""
    for k in range(edges.starts[e], edges.starts[e + 1]):
        release(sync.locks, edges.rows[k])
