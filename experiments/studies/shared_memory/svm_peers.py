"""The speed of scikit-learn and of a numpy loop on the same examples."""

import time
from typing import Any

import numpy as np

from dml.models.sparse.svm import matrix
from dml.types import Batch, Problem
from studies.shared_memory import sparse_flags

NUMPY = 2000  # examples of the loop
SLOPES = {
    "hinge": lambda margin: -1.0 * (margin < 1),
    "logistic": lambda margin: -1 / (1 + np.exp(margin)),
}
NAMES = {"hinge": "hinge", "logistic": "log_loss"}  # scikit-learn's


def peers(
    problem: Problem, stated: sparse_flags.Stated, *, loss: str
) -> dict[str, float]:
    """Return the updates per second of SGDClassifier and of a loop in numpy."""
    data, width = problem.kernel.data, len(problem.params)
    batch = Batch(matrix(data, width).astype(problem.params.dtype), data.labels)
    return {
        "sklearn_updates_per_second": sklearn(batch, loss, data.mu, stated),
        "numpy_updates_per_second": loop(batch, loss, data.mu, stated.lr),
    }


def sklearn(batch: Batch, loss: str, mu: float, stated: Any) -> float:
    """Time SGDClassifier with the first epoch's rate: the median of three runs."""
    from sklearn.linear_model import SGDClassifier

    peer = SGDClassifier(
        loss=NAMES[loss],
        alpha=mu,
        max_iter=stated.epochs,
        tol=None,
        shuffle=False,
        learning_rate="constant",
        eta0=stated.lr,
        fit_intercept=False,
    )
    taken = []
    for _ in range(3):
        begun = time.perf_counter()
        peer.fit(batch.inputs, batch.targets)
        taken.append(time.perf_counter() - begun)
    return stated.epochs * len(batch.targets) / float(np.median(taken))


def loop(batch: Batch, loss: str, mu: float, rate: float) -> float:
    """Time NUMPY examples, each by a few calls of numpy on its features."""
    inputs, count = batch.inputs, min(NUMPY, len(batch.targets))
    starts, features, values = inputs.indptr, inputs.indices, inputs.data
    weights, scale = np.zeros(inputs.shape[1], values.dtype), 1.0
    begun = time.perf_counter()
    for e in range(count):
        its = slice(starts[e], starts[e + 1])
        label, x, w = batch.targets[e], values[its], weights[features[its]]
        slope = SLOPES[loss](label * scale * (x @ w))
        scale *= 1 - rate * mu
        weights[features[its]] = w - rate * slope * label / scale * x
    return count / (time.perf_counter() - begun)
