"""Sparse logistic regression on a server: a weight a row, touched by few examples.

Batches of CSR rows and labels -1, +1 in, their Problem out. The L1 norm is not in its
gradient but in the server's update: pass the same l1 to update.table.table.
"""

from collections.abc import Mapping

import numpy as np

from dml.models import sparse_logistic
from dml.types import BadInput, Batch, Problem


def problem(training: Batch, held_out: Batch, l1: float) -> Problem:
    """Bind the examples; evaluate training's objective, and held_out's loss, accuracy.

    zeros is the share of weights that are 0; heat counts a feature's examples.
    """
    for name, batch in (("training", training), ("held_out", held_out)):
        _check(name, batch, training.inputs.shape[1])

    def touched(index: np.ndarray) -> np.ndarray:
        return sparse_logistic.touched(training.inputs, index)

    def gradient(
        table_Tx1: np.ndarray, index: np.ndarray, rows: np.ndarray | slice
    ) -> tuple[float, np.ndarray]:
        assert not isinstance(rows, slice)
        weights_T = table_Tx1.reshape(-1)
        loss, grads_N = sparse_logistic.gradient(weights_T, training, index, rows)
        return loss, grads_N[:, None]

    def evaluate(table_Tx1: np.ndarray) -> Mapping[str, float]:
        weights_T = table_Tx1.reshape(-1)
        return {
            "objective": sparse_logistic.objective(weights_T, training, l1),
            "loss": sparse_logistic.loss(weights_T, held_out),
            "accuracy": sparse_logistic.accuracy(weights_T, held_out),
            "zeros": float((weights_T == 0).mean()),
        }

    examples, features = training.inputs.shape
    heat = np.bincount(training.inputs.indices, minlength=features)
    start_Tx1 = np.zeros((features, 1), np.float32)
    return Problem(start_Tx1, examples, touched, gradient, evaluate, heat)


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
