"""GRADIENT: logistic regression of labels -1, +1 on sparse rows, with an L1 norm.

    objective = 1/n Σ_i log(1 + exp(-y_i ⟨x_i, w⟩)) + l1 |w|_1

Weights and a Batch of a CSR matrix in; losses and gradients of the features touched
out. There is no bias: tf-idf rows have length 1 and need none; where examples need
one, give them a feature that is always 1. The norm is left to the update.
"""

import numpy as np
from numba import njit

from dml.types import Batch

ZERO = np.float32(0)


def touched(inputs, index: np.ndarray) -> np.ndarray:
    """Return the features that these examples have, each once, as they come."""
    index = np.ascontiguousarray(index, np.int64)
    return _touched(inputs.indptr, inputs.indices, index, inputs.shape[1])


def gradient(
    weights_T: np.ndarray, batch: Batch, index: np.ndarray, rows_N: np.ndarray
) -> tuple[float, np.ndarray]:
    """Return the mean loss of these examples, and its gradient by these weights."""
    index = np.ascontiguousarray(index, np.int64)
    inputs = batch.inputs
    matrix = inputs.indptr, inputs.indices, inputs.data
    return _gradient(weights_T, matrix, batch.targets, index, rows_N)


def loss(weights_T: np.ndarray, batch: Batch) -> float:
    """Return the mean loss of a batch, without the norm."""
    margins_B = batch.targets * (batch.inputs @ weights_T)
    return float(np.logaddexp(0, -margins_B, dtype=np.float64).mean())


def objective(weights_T: np.ndarray, batch: Batch, l1: float) -> float:
    """Return the mean loss of a batch, and the norm."""
    return loss(weights_T, batch) + l1 * float(abs(weights_T).sum(dtype=np.float64))


def accuracy(weights_T: np.ndarray, batch: Batch) -> float:
    """Return the share of examples on their side; on the plane itself is +1."""
    guesses_B = np.where(batch.inputs @ weights_T < 0, -1, 1)
    return float((guesses_B == batch.targets).mean())


def kkt(
    weights: np.ndarray, grads: np.ndarray, l1: float, margin: float = 0.0
) -> np.ndarray:
    """Return which rows' gradients are worth sending, Li (OSDI'14): True where so.

    A weight of zero whose gradient is at most l1 stays there: it meets the conditions
    of Karush, Kuhn and Tucker. A margin sends those too that nearly leave.
    """
    worth = (weights != 0) | ~(abs(grads) <= l1 - margin)  # so that NaN is sent
    return worth.any(axis=tuple(range(1, worth.ndim)))


@njit(nogil=True, cache=True)
def _touched(starts, features, index, width):
    seen, rows = np.zeros(width, np.bool_), np.empty(width, np.int64)
    count = 0
    for i in index:
        for k in range(starts[i], starts[i + 1]):
            if not seen[features[k]]:
                seen[features[k]] = True
                rows[count] = features[k]
                count += 1
    return rows[:count].copy()


@njit(nogil=True, cache=True)
def _gradient(weights_T, matrix, targets, index, rows_N):
    starts, features, values = matrix
    place_T = np.zeros(len(weights_T), np.int64)  # 1 + where in rows; 0: not asked for
    for n in range(len(rows_N)):
        place_T[rows_N[n]] = n + 1
    grads_N, total = np.zeros(len(rows_N) + 1, np.float32), 0.0  # [0] takes the others
    for i in index:
        score = ZERO
        for k in range(starts[i], starts[i + 1]):
            score += values[k] * weights_T[features[k]]
        margin = targets[i] * score
        # exp of what is not above 0 cannot overflow
        small = np.exp(-abs(margin))
        total += np.log1p(small) + max(-margin, ZERO)
        wrong = (small if margin > 0 else np.float32(1)) / (1 + small)
        factor = np.float32(-targets[i] * wrong / len(index))
        for k in range(starts[i], starts[i + 1]):
            grads_N[place_T[features[k]]] += factor * values[k]
    return total / max(len(index), 1), grads_N[1:]
