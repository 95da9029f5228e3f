"""One lock around the whole table: one worker computes, the others wait.

    worker 0   🔒 read, gradient, change 🔓                          🔒 …
    worker 1   ⏳                          🔒 read, gradient, change 🔓

All is serial, in whatever order locks are taken: p workers take as long as one, and
what passing the lock costs.
"""

from numba import njit

from dml.wire.memory.atomics import acquire, release
from dml.wire.memory.hogwild import STEPS, add, turn

__all__ = ["STEPS", "add", "enter", "leave", "turn"]


@njit(nogil=True, cache=True)
def enter(sync, edges, e):
    """Take the lock."""
    acquire(sync.whole, 0)


@njit(nogil=True, cache=True)
def leave(sync, edges, e, t, moves):
    """Give it back."""
    release(sync.whole, 0)
