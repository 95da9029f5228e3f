"""Sparse logistic regression as the problem of a table with one weight per row.

The L1 norm is not part of the gradient but of the update: pass the same l1 to
`dml.update.table.table`.
"""

from collections.abc import Mapping
from operator import attrgetter

import numpy as np

from dml.models import sparse_logistic
from dml.types import BadInput, Batch, Problem, Rows, Touching


def problem(training: Batch, held_out: Batch, l1: float) -> Problem:
    """Return the problem of CSR rows with labels -1 and +1.

    It is evaluated by the objective on `training`, the loss and accuracy on `held_out`,
    and the share of weights that are 0. A row's access frequency is the number of
    examples with its feature.
    """
    for name, batch in (("training", training), ("held_out", held_out)):
        _check(name, batch, training.inputs.shape[1])

    def take(indices: np.ndarray) -> Touching:
        return Touching(indices, sparse_logistic.touched(training.inputs, indices))

    def gradient(table_Tx1: np.ndarray, batch: Touching) -> tuple[float, Rows]:
        assert not isinstance(batch.rows, slice)
        weights_T = table_Tx1.reshape(-1)
        loss, grads_N = sparse_logistic.gradient(
            weights_T, training, batch.indices, batch.rows
        )
        return loss, Rows(batch.rows, grads_N[:, None])

    def evaluate(table_Tx1: np.ndarray) -> Mapping[str, float]:
        weights_T = table_Tx1.reshape(-1)
        return {
            "objective": sparse_logistic.objective(weights_T, training, l1),
            "loss": sparse_logistic.loss(weights_T, held_out),
            "accuracy": sparse_logistic.accuracy(weights_T, held_out),
            "zeros": float((weights_T == 0).mean()),
        }

    examples, features = training.inputs.shape
    frequency = np.bincount(training.inputs.indices, minlength=features)
    start_Tx1 = np.zeros((features, 1), np.float32)
    rows = attrgetter("rows")
    return Problem(start_Tx1, examples, gradient, evaluate, take, rows, frequency)


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
            f"{batch.inputs.shape[1]}; read both files with that many"
        )
