"""A locking policy that loses every change of row 3, to test the count of losses."""

from numba import njit

from dml.wire.memory.hogwild import STEPS, before_changes, enter, leave

__all__ = ["STEPS", "add", "enter", "leave", "before_changes"]


@njit(nogil=True, cache=True)
def add(numbers, i, delta):
    """numbers[i] += delta, unless i is 3."""
    if i != 3:
        numbers[i] += delta
