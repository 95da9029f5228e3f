"""Updates of rows by `move` of a sparse model: SGD, or projected gradients.

Projected gradients (Goldstein 1964): x ← the feasible point nearest to x - rate g.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit


class Moves:
    """A Shard whose rows are updated by `move` of a sparse model.

    Args:
      values: Rows before the first update, RxD; copied.
      move: Compiled function of the model; see `dml.types.SparseModel`.
      rate: number of an update, from 1 -> learning rate of the update.
    """

    state = ()

    def __init__(
        self, values: np.ndarray, move: Any, rate: Callable[[int], float]
    ) -> None:
        self.values = np.array(values, order="C")
        self.move, self.rate = move, rate
        self.updates = 0

    def update(
        self, rows: np.ndarray | slice, grads: np.ndarray, share: float = 1.0
    ) -> None:
        """Update distinct rows."""
        self.updates += 1
        rate = self.values.dtype.type(self.rate(self.updates))
        indices = np.arange(len(self.values))[rows]
        apply_moves(self.move, self.values, indices, np.array(grads), rate)


# No cache=True: numba's cache on disk would not notice a change of the model.
@njit(nogil=True)
def apply_moves(move, values, rows, changes, rate):
    """Add the changes to rows; `changes` contains gradients, and is overwritten."""
    for n in range(len(rows)):
        move(values, rows[n], changes, n, rate)
        values[rows[n]] += changes[n]
