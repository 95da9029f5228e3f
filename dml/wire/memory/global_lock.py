"""Global lock: one worker reads, computes and writes while the others wait.

    worker 0   🔒 read, gradient, change 🔓                          🔒 …
    worker 1   ⏳                          🔒 read, gradient, change 🔓

Training is serial, in the order in which the lock is acquired: all workers together
take the time of one worker, plus the time to acquire the lock.
"""

from numba import njit

from dml.wire.memory.atomics import acquire, release
from dml.wire.memory.hogwild import STEPS, add, before_changes

__all__ = ["STEPS", "add", "before_changes", "enter", "leave"]


@njit(nogil=True, cache=True)
def enter(sync, edges, e):
    """Acquire the lock."""
    acquire(sync.global_lock, 0)


@njit(nogil=True, cache=True)
def leave(sync, edges, e, t, moves):
    """Release the lock."""
    release(sync.global_lock, 0)
