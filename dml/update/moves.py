"""Updates of rows by the step of a sparse model: SGD, possibly with a projection.

Projected gradients (Goldstein 1964): x ← the nearest feasible point to x - rate g.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit


class Moves:
    """A Shard of rows that a sparse model moves.

    Args:
      values: Rows before the first update, RxD; copied.
      move: `move` of the model, compiled; see `dml.types.SparseModel`.
      rate: Number of an update, from 1 -> its learning rate.
    """

    state = ()

    def __init__(
        self, values: np.ndarray, move: Any, rate: Callable[[int], float]
    ) -> None:
        self.values = np.array(values, order="C")
        self.move, self.rate, self.number = move, rate, 0

    def update(
        self, at: np.ndarray | slice, grads: np.ndarray, share: float = 1.0
    ) -> None:
        """Update rows, each once."""
        self.number += 1
        rate = self.values.dtype.type(self.rate(self.number))
        rows, changes = np.arange(len(self.values))[at], np.array(grads)
        step(self.move, self.values, rows, changes, rate)


# Not cached: numba's cache on disk would not notice a change of the model.
@njit(nogil=True)
def step(move, values, rows, changes, rate):
    for n in range(len(rows)):
        move(values, rows[n], changes, n, rate)
        values[rows[n]] += changes[n]
