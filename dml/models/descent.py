"""GRADIENT: the defaults of sparse models, and their Problem.

By default rows move down their gradient, and the table is the parameters themselves.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numba import njit

from dml.types import Kernel, Problem, SparseModel


def problem(
    model: SparseModel,
    data: Any,
    start: np.ndarray,
    evaluate: Callable[[np.ndarray], Mapping[str, Any]] = lambda table: {},
) -> Problem:
    """Return the problem of a sparse model, an example for each edge.

    model: a module of models.
    data: its data, whose first field is `edges`.
    start: the table before the first update.
    evaluate: table -> measures by name.
    """
    examples = len(data.edges.starts) - 1
    return Problem(start, examples, None, evaluate, kernel=Kernel(data, model))


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
