"""A guard that loses every change of row 3, so that a count must notice."""

from numba import njit

from dml.wire.memory.hogwild import STEPS, before_changes, enter, leave

__all__ = ["STEPS", "add", "enter", "leave", "before_changes"]


@njit(nogil=True, cache=True)
def add(numbers, i, delta):
    """numbers[i] += delta, unless i is 3."""
    if i != 3:
        numbers[i] += delta
