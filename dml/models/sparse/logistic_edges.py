"""Logistic regression on sparse rows, edge by edge (HOGWILD!, Niu 2011).

    objective = mean of log(1 + exp(-y_e ⟨x_e, w⟩)) + ½ μ |w|²

Documents and norm are as in `svm`: the table is v, where w = a_t v. `logistic`, for
parameter servers, has minibatches and an L1 norm, and sums in another order.
"""

import numpy as np
from numba import njit

from dml.models.sparse.problem import descend as move
from dml.models.sparse.svm import (
    Documents,
    accuracy,
    check_optimum_exists,
    decay,
    documents,
    matrix,
    scale,
    score,
    settle,
    with_rate,
    write_gradient,
)

__all__ = ["decay", "gradient", "move", "objective", "optimum", "with_rate", "settle"]
__all__ += ["Documents", "accuracy", "documents"]
# Largest element of the gradient at which L-BFGS stops; the objective is then less than
# 1e-18 T / (2 μ) above the optimum, for T weights.
TOLERANCE = 1e-9
STORED_PAIRS = 20  # number of pairs of steps and gradients that L-BFGS stores


@njit(nogil=True, cache=True, forceinline=True)
def gradient(table, data, e, t, grads):
    """Return the log loss; set grads, by v, to -y x / (1 + exp(margin)) / a_{t+1}."""
    label = data.labels[e]
    margin = label * scale(data, t) * score(table, data, e)
    odds = np.exp(-abs(margin))  # cannot overflow
    wrong = (odds if margin > 0 else table.dtype.type(1)) / (1 + odds)
    write_gradient(-label * wrong / scale(data, t + 1), data, e, grads)
    return np.log1p(odds) + max(-margin, 0.0), True


def objective(table: np.ndarray, data: Documents) -> float:
    """Return the mean log loss of weights w plus ½ μ |w|²."""
    norm = np.square(table, dtype=np.float64).sum()
    return _losses(table, data) / len(data.labels) + 0.5 * data.mu * float(norm)


@njit(nogil=True, cache=True)
def _losses(table, data):
    total = 0.0
    for e in range(len(data.labels)):
        margin = data.labels[e] * score(table, data, e)
        total += np.log1p(np.exp(-abs(margin))) + max(-margin, 0.0)
    return total


def optimum(data: Documents, width: int) -> np.ndarray:
    """Return the weights of the minimum objective, by L-BFGS in float64."""
    from scipy.optimize import minimize
    from scipy.special import expit

    check_optimum_exists(data)
    inputs, labels = matrix(data, width), data.labels.astype(np.float64)

    def loss_and_gradient(weights: np.ndarray) -> tuple[float, np.ndarray]:
        margins = labels * (inputs @ weights)
        wrong = -labels * expit(-margins) / len(labels)
        loss = np.logaddexp(0, -margins).mean() + 0.5 * data.mu * weights @ weights
        return float(loss), inputs.T @ wrong + data.mu * weights

    result = minimize(
        loss_and_gradient,
        np.zeros(width),
        jac=True,
        method="L-BFGS-B",
        options={
            "maxiter": 10_000,
            "maxcor": STORED_PAIRS,
            "ftol": 0,
            "gtol": TOLERANCE,
        },
    )
    return result.x.astype(data.values.dtype)
