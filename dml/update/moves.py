"""UPDATE of rows by a sparse model's own step: SGD, and a projection where it has one.

Projected gradients (Goldstein 1964): x ← the nearest feasible point to x - rate g.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit


class Moves:
    """Rows that a model moves.

    Args:
      values: The rows before the first update, RxD; a copy is kept.
      move: The model's `move`, compiled; see `dml.types.SparseModel`.
      rate: The number of an update, from 1 -> its rate.
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
        """Step on rows, each once."""
        self.number += 1
        rate = self.values.dtype.type(self.rate(self.number))
        rows, changes = np.arange(len(self.values))[at], np.array(grads)
        step(self.move, self.values, rows, changes, rate)


# Not cached: what is kept on disk would not change when the model does.
@njit(nogil=True)
def step(move, values, rows, changes, rate):
    for n in range(len(rows)):
        move(values, rows[n], changes, n, rate)
        values[rows[n]] += changes[n]
