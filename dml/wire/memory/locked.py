"""AIG (Niu 2011): as HOGWILD!, but an edge's rows are locked while they are changed.

    rows   1  4  7      Each row has its lock. All take them from the lowest row to the
    e      🔒 🔒         highest, so that no two wait for each other.
    f         ⏳ ·

No change is lost; reads are as free as HOGWILD!'s. 2|e| writes an edge beside its own.
"""

from numba import njit

from dml.wire.memory.atomics import acquire, release
from dml.wire.memory.hogwild import STEPS, add, enter

__all__ = ["STEPS", "add", "enter", "leave", "turn"]


@njit(nogil=True, cache=True)
def turn(sync, edges, e, t, moves):
    """Take the edge's locks, lowest row first."""
    if moves:
        for k in range(edges.starts[e], edges.starts[e + 1]):
            acquire(sync.locks, edges.rows[k])


@njit(nogil=True, cache=True)
def leave(sync, edges, e, t, moves):
    """Give them back."""
    if moves:
        for k in range(edges.starts[e], edges.starts[e + 1]):
            release(sync.locks, edges.rows[k])
