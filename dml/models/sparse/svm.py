"""A support vector machine on sparse rows, edge by edge (HOGWILD!, Niu 2011).

    objective = mean of max(0, 1 - y_e ⟨x_e, w⟩) + ½ μ |w|²

The norm shrinks all weights at every step. The table is therefore v, where w = a_t v
and a_t = (1 - rate μ)^t depends on the step alone; an edge without loss writes nothing.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from dml.models.sparse.problem import descend as move
from dml.types import BadInput, Batch, Edges

__all__ = ["decay", "gradient", "move", "objective", "optimum", "with_rate", "settle"]
__all__ += ["Documents", "accuracy", "documents"]
LOW = 8  # number of low bits of a step: the index into `low`
RANGE = 80  # -log of the least scale, a normal float32


class Documents(NamedTuple):
    """Rows of features with labels -1, +1; scales are those of an epoch."""

    edges: Edges
    values: np.ndarray  # value of each feature in edges.rows
    labels: np.ndarray
    mu: float
    low: np.ndarray  # a_t = low[t % 256] · high[t // 256]
    high: np.ndarray


def documents(batch: Batch, mu: float, dtype: Any = np.float32) -> Documents:
    """Return the edges of a CSR matrix and its labels, in their order."""
    inputs = batch.inputs
    edges = Edges(inputs.indptr.astype(np.int64), inputs.indices.astype(np.uint32))
    one = np.ones(1, dtype)
    values, labels = inputs.data.astype(dtype), batch.targets.astype(dtype)
    return with_rate(Documents(edges, values, labels, mu, one, one), rate=0)


@njit(nogil=True, cache=True, forceinline=True)
def scale(data, t):
    """Return a_t."""
    return data.low[t & 255] * data.high[t >> LOW]


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
def spread(factor, data, e, grads):
    """Write factor · x_e, the gradient of a loss of one score."""
    values = data.values[data.edges.starts[e] : data.edges.starts[e + 1]]
    for k in range(len(values)):
        grads[k] = factor * values[k]


@njit(nogil=True, cache=True, forceinline=True)
def gradient(table, data, e, t, grads):
    """Return the hinge loss; if it is above 0, grads is that of v: -y x / a_t+1."""
    label = data.labels[e]
    margin = label * scale(data, t) * score(table, data, e)
    if margin >= 1:
        return 0.0, False
    spread(-label / scale(data, t + 1), data, e, grads)
    return 1.0 - margin, True


def decay(data: Documents) -> float:
    """Return the weight of half the squared norm."""
    return data.mu


def with_rate(data: Documents, rate: float) -> Documents:
    """Return the documents with the scales of an epoch at this rate."""
    steps, shrink = len(data.labels), rate * data.mu
    # written so that NaN is refused
    if not 0 <= shrink < 1 or not -steps * math.log1p(-shrink) <= RANGE:
        raise BadInput(
            f"expected a norm that does not erase the weights in an epoch of {steps} "
            f"steps, got {rate=:g} times mu={data.mu:g}; pass --lr and --mu of 0 or "
            f"more, whose product is below {RANGE / (steps + RANGE):.2g}"
        )
    keep = 1 - shrink
    high = keep ** (np.arange((steps >> LOW) + 1) << LOW)
    kind = data.values.dtype
    low = keep ** np.arange(1 << LOW)
    return data._replace(low=low.astype(kind), high=high.astype(kind))


def settle(table: np.ndarray, data: Documents, steps: int) -> None:
    """Convert v, or part of it, to w in place; the scale becomes 1."""
    table *= data.low[steps & 255] * data.high[steps >> LOW]


def objective(table: np.ndarray, data: Documents) -> float:
    """Return the mean hinge loss of weights w, plus the norm."""
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
    """Return the weights with the least objective, by liblinear's dual method."""
    from sklearn.svm import LinearSVC

    refuse_unbounded(data)
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


def refuse_unbounded(data: Documents) -> None:
    """Raise BadInput if there is no finite optimum, or only one label."""
    kinds = np.unique(data.labels)
    if not data.mu > 0 or len(kinds) < 2:
        raise BadInput(
            f"expected a norm and labels -1 and 1, so that an optimum exists, got "
            f"mu={data.mu:g} and labels {kinds.tolist()}; pass --mu above 0 and "
            "examples of both labels"
        )


def matrix(data: Documents, width: int) -> Any:
    """Return the rows as a CSR matrix of float64."""
    from scipy.sparse import csr_matrix

    parts = data.values.astype(np.float64), data.edges.rows, data.edges.starts
    return csr_matrix(parts, shape=(len(data.labels), width))
