"""GRADIENT: what a sparse model does where it says nothing else.

Its rows move down their gradient, and its table is at all times what it stands for.
"""

from typing import Any

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def descend(table, row, grads, s, rate):
    """grads[s] ← what the row changes by: -rate · gradient."""
    if grads.ndim == 1:
        grads[s] *= -rate
    else:
        for d in range(grads.shape[1]):
            grads[s, d] *= -rate


def unpaced(data: Any, rate: float) -> Any:
    """Return the data, whatever the rate."""
    return data


def unsettled(table: np.ndarray, data: Any, steps: int) -> None:
    """Leave the table as it is."""
