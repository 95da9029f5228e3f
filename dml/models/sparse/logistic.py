"""Logistic regression of labels -1, +1 on sparse rows, with an L1 norm.

    objective = 1/n Σ_i log(1 + exp(-y_i ⟨x_i, w⟩)) + l1 |w|_1

There is no bias, because rows of tf-idf features do not need one; for other examples,
add a feature that is always 1. The gradient does not include the norm, which the update
applies: pass the same l1 to `dml.update.table.table`.
"""

from collections.abc import Mapping

import numpy as np
from numba import njit

from dml.models.sparse.problem import row_problem
from dml.models.sparse.svm import accuracy
from dml.types import BadInput, Batch, Edges, Problem

ZERO = np.float32(0)


def problem(training: Batch, held_out: Batch, l1: float) -> Problem:
    """Return the problem of CSR rows with labels -1 and +1, a table of one column.

    Evaluation returns the objective on `training`, loss and accuracy on `held_out`, and
    the share of weights that are 0. The access frequency of a row is the number of
    examples with the feature.
    """
    for name, batch in (("training", training), ("held_out", held_out)):
        _check(name, batch, training.inputs.shape[1])

    def evaluate(table_Tx1: np.ndarray) -> Mapping[str, float]:
        weights_T = table_Tx1.reshape(-1)
        return {
            "objective": objective(weights_T, training, l1),
            "loss": loss(weights_T, held_out),
            "accuracy": accuracy(weights_T, held_out),
            "zeros": float((weights_T == 0).mean()),
        }

    features = training.inputs.indices
    start_Tx1 = np.zeros((training.inputs.shape[1], 1), np.float32)
    return row_problem(
        start_Tx1,
        Edges(training.inputs.indptr, features),
        lambda table, index, rows: gradient(table[:, 0], training, index, rows),
        evaluate,
        np.bincount(features, minlength=len(start_Tx1)),
        ascending=False,  # the order of rows in recorded results
    )


def _check(name: str, batch: Batch, features: int) -> None:
    labels = np.unique(batch.targets)
    if not np.isin(labels, (-1, 1)).all():
        raise BadInput(
            f"expected labels -1 and +1 in {name}, got {labels[:5].tolist()}; "
            "replace them"
        )
    if batch.inputs.shape[1] != features:
        raise BadInput(
            f"expected {features} features in {name}, as in training, got "
            f"{batch.inputs.shape[1]}; read both files with the same number of features"
        )


def gradient(
    weights_T: np.ndarray, batch: Batch, index: np.ndarray, rows_N: np.ndarray
) -> tuple[float, np.ndarray]:
    """Return the mean loss of a minibatch, and the gradient of the weights in rows_N.

    Args:
      weights_T: All weights.
      batch: All examples.
      index: Indices of the minibatch's examples.
      rows_N: Indices of the weights.
    """
    index = np.ascontiguousarray(index, np.int64)
    inputs = batch.inputs
    matrix = inputs.indptr, inputs.indices, inputs.data
    return _gradient(weights_T, matrix, batch.targets, index, rows_N)


def loss(weights_T: np.ndarray, batch: Batch) -> float:
    """Return the mean loss of a batch, without the norm."""
    margins_B = batch.targets * (batch.inputs @ weights_T)
    return float(np.logaddexp(0, -margins_B, dtype=np.float64).mean())


def objective(weights_T: np.ndarray, batch: Batch, l1: float) -> float:
    """Return the mean loss of a batch plus the norm times l1."""
    return loss(weights_T, batch) + l1 * float(abs(weights_T).sum(dtype=np.float64))


def kkt(
    weights: np.ndarray, grads: np.ndarray, l1: float, margin: float = 0.0
) -> np.ndarray:
    """Return the mask of rows whose gradients must be sent (Li 2014, OSDI).

    A weight of zero whose gradient is at most l1 in absolute value satisfies the
    conditions of Karush, Kuhn and Tucker (KKT) and stays zero: its gradient need not be
    sent. The margin adds rows that nearly violate the conditions.

    Args:
      weights: Values of the rows.
      grads: Gradients of the rows.
      l1: Weight of the norm.
      margin: Margin below l1.
    """
    needed = (weights != 0) | ~(abs(grads) <= l1 - margin)  # True for NaN
    return needed.any(axis=tuple(range(1, needed.ndim)))


@njit(nogil=True, cache=True)
def _gradient(weights_T, matrix, targets, index, rows_N):
    starts, features, values = matrix
    # 1 + index of the weight in rows_N; 0: not in rows_N
    place_T = np.zeros(len(weights_T), np.int64)
    for n in range(len(rows_N)):
        place_T[rows_N[n]] = n + 1
    grads_N = np.zeros(len(rows_N) + 1, np.float32)  # [0]: rows that are not in rows_N
    total = 0.0
    for i in index:
        score = ZERO
        for k in range(starts[i], starts[i + 1]):
            score += values[k] * weights_T[features[k]]
        margin = targets[i] * score
        # exp of a number of at most 0 cannot overflow
        odds = np.exp(-abs(margin))
        total += np.log1p(odds) + max(-margin, ZERO)
        wrong = (odds if margin > 0 else np.float32(1)) / (1 + odds)
        factor = np.float32(-targets[i] * wrong / len(index))
        for k in range(starts[i], starts[i + 1]):
            grads_N[place_T[features[k]]] += factor * values[k]
    return total / max(len(index), 1), grads_N[1:]
