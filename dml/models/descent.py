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


@njit(nogil=True, cache=True, forceinline=True)
def dot(x_NxD, i, y_MxD, j, width):
    """Return ⟨x_i, y_j⟩ over the first columns, by four sums that do not wait.

    `sparse_svm.score` has the same sums over the values of sparse rows.
    """
    one = two = three = four = x_NxD.dtype.type(0)
    d = 0
    while d + 3 < width:
        one += x_NxD[i, d] * y_MxD[j, d]
        two += x_NxD[i, d + 1] * y_MxD[j, d + 1]
        three += x_NxD[i, d + 2] * y_MxD[j, d + 2]
        four += x_NxD[i, d + 3] * y_MxD[j, d + 3]
        d += 4
    while d < width:
        one += x_NxD[i, d] * y_MxD[j, d]
        d += 1
    return (one + two) + (three + four)


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
