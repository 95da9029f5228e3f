"""Diverse and repeated examples, and the bound that their gradients set to a batch.

Sizes in; a Plan of what is learned out, to a goal above its least objective.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dml.data.svmlight import generate, laid_out
from dml.models import descent
from dml.models import sparse_logistic_edges as logistic
from dml.models.sparse_logistic_edges import Documents
from dml.models.sparse_svm import matrix
from dml.types import BadInput, Batch, Problem


class Plan(NamedTuple):
    """Where descent starts and ends."""

    problem: Problem
    first: float  # the objective that it starts with
    goal: float  # the one to be reached
    window: int  # examples between two looks at the objective, at least
    limit: int  # examples after which it is given up

    @property
    def examples(self) -> int:
        return self.problem.examples


def diverse(size: tuple[int, int, int], copies: int, seed: int) -> Batch:
    """Return examples, all different."""
    return generate(*size, seed)


def repeated(size: tuple[int, int, int], copies: int, seed: int) -> Batch:
    """Return as many examples, of which each is there so many times."""
    examples, *rest = size
    some = generate(examples // copies, *rest, seed)
    again = np.arange(examples) % len(some.targets)
    return Batch(some.inputs[again], some.targets[again])


DATA = {"diverse": diverse, "repeated": repeated}


def planned(name: str, values: Any) -> Plan:
    """Make data as the flags say, and find its least objective."""
    size = values.examples, values.features, values.nonzeros
    if values.nonzeros > values.features or 2 * values.copies > values.examples:
        raise BadInput(
            f"expected --nonzeros of at most {values.features}, the features, and "
            f"--copies of at most half of {values.examples} examples, got "
            f"{values.nonzeros} and {values.copies}; pass fewer"
        )
    batch = laid_out(DATA[name](size, values.copies, values.seed), values.seed)
    data = logistic.documents(batch, values.mu)
    start = np.zeros(values.features, np.float32)
    least = logistic.objective(logistic.optimum(data, values.features), data)
    return Plan(
        descent.problem(logistic, data, start),
        logistic.objective(start, data),
        (1 + values.within) * least,
        max(1, values.examples // values.looks),
        values.epochs * values.examples,
    )


def diversity(data: Documents, width: int) -> Callable[[np.ndarray], float]:
    """Return table -> n Σ|g_i|² / |Σ g_i|², the bound of a batch (Yin 2018, def. 2).

    g_i is the gradient of an example's own log loss and of the norm. To have all
    examples r times leaves the bound as it is: n copies of one example have 1.
    """
    from scipy.special import expit

    inputs, labels = matrix(data, width), data.labels.astype(np.float64)
    lengths = np.asarray(inputs.multiply(inputs).sum(axis=1)).ravel()

    def bound(table: np.ndarray) -> float:
        weights, n = table.astype(np.float64), len(labels)
        scores = inputs @ weights
        slopes = -labels * expit(-labels * scores)  # g_i = slope x_i + μ w
        squares = slopes**2 @ lengths + 2 * data.mu * slopes @ scores
        squares += n * data.mu**2 * weights @ weights
        whole = inputs.T @ slopes + n * data.mu * weights
        return float(n * squares / (whole @ whole))

    return bound
