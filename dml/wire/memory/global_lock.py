"""A global lock of the table: one worker computes, the others wait.

    worker 0   🔒 read, gradient, change 🔓                          🔒 …
    worker 1   ⏳                          🔒 read, gradient, change 🔓

Training is serial, in the order in which the lock is acquired: p workers take as long
as one, and the time of passing the lock.
"""

from numba import njit

from dml.wire.memory.atomics import acquire, release
from dml.wire.memory.hogwild import STEPS, add, turn

__all__ = ["STEPS", "add", "enter", "leave", "turn"]


@njit(nogil=True, cache=True)
def enter(sync, edges, e):
    """Acquire the lock."""
    acquire(sync.whole, 0)


@njit(nogil=True, cache=True)
def leave(sync, edges, e, t, moves):
    """Release the lock."""
    release(sync.whole, 0)
