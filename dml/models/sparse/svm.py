"""A support vector machine on sparse rows, edge by edge (HOGWILD!, Niu 2011).

    objective = mean of max(0, 1 - y_e ⟨x_e, w⟩) + ½ μ |w|²

The norm shrinks all weights at every step. The table therefore contains v, where w =
a_t v and a_t = (1 - rate μ)^t after t steps of the epoch: only the rows of the edge
change in a step, and none if the loss of the edge is 0.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from dml.models.sparse.problem import descend as move
from dml.types import BadInput, Batch, Edges

__all__ = ["decay", "gradient", "move", "objective", "optimum", "with_rate", "settle"]
__all__ += ["Documents", "accuracy", "documents"]
LOW_BITS = 8  # number of low bits of t, which are the index into `low`
MAX_DECAY = 80  # maximum of -log a_t, so that a_t is a normal float32


class Documents(NamedTuple):
    """Sparse rows of features with labels -1, +1, and the scales a_t of an epoch."""

    edges: Edges
    values: np.ndarray  # value of each feature in edges.rows
    labels: np.ndarray
    mu: float  # weight of ½ |w|²
    low: np.ndarray  # a_t = low[t % 256] · high[t // 256]
    high: np.ndarray


def documents(batch: Batch, mu: float, dtype: Any = np.float32) -> Documents:
    """Return an edge for each row of a CSR matrix, in the order of the rows."""
    inputs = batch.inputs
    edges = Edges(inputs.indptr.astype(np.int64), inputs.indices.astype(np.uint32))
    scales = np.ones(1, dtype)
    values, labels = inputs.data.astype(dtype), batch.targets.astype(dtype)
    return with_rate(Documents(edges, values, labels, mu, scales, scales), rate=0)


@njit(nogil=True, cache=True, forceinline=True)
def scale(data, t):
    """Return a_t."""
    return data.low[t & 255] * data.high[t >> LOW_BITS]


@njit(nogil=True, cache=True, forceinline=True)
def score(table, data, e):
    """Return ⟨x_e, table⟩, in four independent sums."""
    first, last = data.edges.starts[e], data.edges.starts[e + 1]
    # slices: the compiler then knows that no index is negative
    rows, values = data.edges.rows[first:last], data.values[first:last]
    one = two = three = four = table.dtype.type(0)
    unrolled = len(rows) & -4
    for k in range(0, unrolled, 4):
        one += values[k] * table[rows[k]]
        two += values[k + 1] * table[rows[k + 1]]
        three += values[k + 2] * table[rows[k + 2]]
        four += values[k + 3] * table[rows[k + 3]]
    for k in range(unrolled, len(rows)):
        one += values[k] * table[rows[k]]
    return (one + two) + (three + four)


@njit(nogil=True, cache=True, forceinline=True)
def write_gradient(factor, data, e, grads):
    """Set grads to factor · x_e; factor is the derivative of the loss by the score."""
    values = data.values[data.edges.starts[e] : data.edges.starts[e + 1]]
    for k in range(len(values)):
        grads[k] = factor * values[k]


@njit(nogil=True, cache=True, forceinline=True)
def gradient(table, data, e, t, grads):
    """Return the hinge loss; if it is above 0, set grads, by v, to -y x / a_{t+1}."""
    label = data.labels[e]
    margin = label * scale(data, t) * score(table, data, e)
    if margin >= 1:
        return 0.0, False
    write_gradient(-label / scale(data, t + 1), data, e, grads)
    return 1.0 - margin, True


def decay(data: Documents) -> float:
    """Return the weight of ½ |w|²."""
    return data.mu


def with_rate(data: Documents, rate: float) -> Documents:
    """Return the documents with the scales of an epoch at this rate."""
    steps, shrink = len(data.labels), rate * data.mu
    # each condition is false for NaN, which is thus refused
    if not 0 <= shrink < 1 or not -steps * math.log1p(-shrink) <= MAX_DECAY:
        raise BadInput(
            f"expected a norm that does not erase the weights in an epoch of {steps} "
            f"steps, got {rate=:g} times mu={data.mu:g}; pass --lr and --mu of 0 or "
            f"more, whose product is below {MAX_DECAY / (steps + MAX_DECAY):.2g}"
        )
    keep = 1 - shrink
    high = keep ** (np.arange((steps >> LOW_BITS) + 1) << LOW_BITS)
    dtype = data.values.dtype
    low = keep ** np.arange(1 << LOW_BITS)
    return data._replace(low=low.astype(dtype), high=high.astype(dtype))


def settle(table: np.ndarray, data: Documents, steps: int) -> None:
    """Convert v, or a chunk of it, to w in place."""
    table *= data.low[steps & 255] * data.high[steps >> LOW_BITS]


def objective(table: np.ndarray, data: Documents) -> float:
    """Return the mean hinge loss of weights w plus ½ μ |w|²."""
    norm = np.square(table, dtype=np.float64).sum()
    return _hinges(table, data) / len(data.labels) + 0.5 * data.mu * float(norm)


@njit(nogil=True, cache=True)
def _hinges(table, data):
    total = 0.0
    for e in range(len(data.labels)):
        total += max(1.0 - data.labels[e] * score(table, data, e), 0.0)
    return total


def accuracy(table: np.ndarray, batch: Batch) -> float:
    """Return the share of examples with the correct sign; a score of 0 counts as +1."""
    sides = np.where(batch.inputs @ table < 0, -1, 1)
    return float((sides == batch.targets).mean())


def optimum(data: Documents, width: int) -> np.ndarray:
    """Return the weights of the minimum objective, by liblinear's dual method."""
    from sklearn.svm import LinearSVC

    check_optimum_exists(data)
    machine = LinearSVC(
        C=1 / (data.mu * len(data.labels)),
        loss="hinge",
        fit_intercept=False,
        tol=1e-6,
        max_iter=100_000,
        random_state=0,
    )
    machine.fit(matrix(data, width), data.labels)
    return machine.coef_[0].astype(data.values.dtype)


def check_optimum_exists(data: Documents) -> None:
    """Raise BadInput if mu is not above 0, or if there is only one label."""
    labels = np.unique(data.labels)
    if not data.mu > 0 or len(labels) < 2:
        raise BadInput(
            f"expected a norm and labels -1 and 1, so that an optimum exists, got "
            f"mu={data.mu:g} and labels {labels.tolist()}; pass --mu above 0 and "
            "examples of both labels"
        )


def matrix(data: Documents, width: int) -> Any:
    """Return the rows as a CSR matrix of float64."""
    from scipy.sparse import csr_matrix

    parts = data.values.astype(np.float64), data.edges.rows, data.edges.starts
    return csr_matrix(parts, shape=(len(data.labels), width))
