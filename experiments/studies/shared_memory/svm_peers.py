"""The speed of scikit-learn and of a numpy loop on the same examples."""

import time
from functools import partial
from typing import Any

import numpy as np

from dml.metrics.alternate import alternate
from dml.models.sparse.svm import matrix
from dml.types import Batch, Problem
from studies.shared_memory import sparse_flags

LOOP_EXAMPLES = 2000  # examples of the loop in numpy
SLOPES = {  # derivative of the loss with respect to the margin
    "hinge": lambda margin: -1.0 * (margin < 1),
    "logistic": lambda margin: -1 / (1 + np.exp(margin)),
}
SKLEARN_LOSSES = {"hinge": "hinge", "logistic": "log_loss"}


def peers(
    problem: Problem, defaults: sparse_flags.Defaults, *, loss: str
) -> dict[str, float]:
    """Return the updates per second of SGDClassifier and of a loop in numpy."""
    data, width = problem.kernel.data, len(problem.params)
    batch = Batch(matrix(data, width).astype(problem.params.dtype), data.labels)
    return {
        "sklearn_updates_per_second": sklearn(batch, loss, data.mu, defaults),
        "numpy_updates_per_second": numpy_loop(batch, loss, data.mu, defaults.lr),
    }


def sklearn(batch: Batch, loss: str, mu: float, defaults: Any) -> float:
    """Return the updates per second of SGDClassifier, the median of three runs.

    All epochs have the learning rate of the first epoch.
    """
    from sklearn.linear_model import SGDClassifier

    classifier = SGDClassifier(
        loss=SKLEARN_LOSSES[loss],
        alpha=mu,
        max_iter=defaults.epochs,
        tol=None,
        shuffle=False,
        learning_rate="constant",
        eta0=defaults.lr,
        fit_intercept=False,
    )
    fit = partial(classifier.fit, batch.inputs, batch.targets)
    times = alternate({"fit": fit}, 3, warm=0)["fit"]
    return defaults.epochs * len(batch.targets) / float(np.median(times))


def numpy_loop(batch: Batch, loss: str, mu: float, rate: float) -> float:
    """Return the updates per second of a loop over examples with calls of numpy."""
    inputs, count = batch.inputs, min(LOOP_EXAMPLES, len(batch.targets))
    starts, features, values = inputs.indptr, inputs.indices, inputs.data
    # The weights are scale * weights, so that the L2 term does not change all of them.
    weights, scale = np.zeros(inputs.shape[1], values.dtype), 1.0
    start = time.perf_counter()
    for example in range(count):
        nonzeros = slice(starts[example], starts[example + 1])
        rows, x = features[nonzeros], values[nonzeros]
        label, w = batch.targets[example], weights[rows]
        slope = SLOPES[loss](label * scale * (x @ w))
        scale *= 1 - rate * mu
        weights[rows] = w - rate * slope * label / scale * x
    return count / (time.perf_counter() - start)
