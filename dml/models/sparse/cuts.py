"""Multi-way graph cuts (Niu 2011, section 2), edge by edge.

    objective = mean of w ½ |x_u - x_v|₁ over pairs, w ½ |x_u - e_k|₁ over terminals

A row x_u of the table lies on the simplex: its shares of K labels. A corner is a label,
and an edge between corners costs its weight if it is cut. The objective times the
number of edges is thus at most the value of a cut: the problem is the linear relaxation
of cuts.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from dml.models.sparse.problem import leave_table as settle
from dml.models.sparse.problem import same_data as with_rate
from dml.models.sparse.problem import zero_decay as decay
from dml.types import Edges

__all__ = ["decay", "gradient", "move", "objective", "with_rate", "settle"]
PAIR = -1  # label of an edge between two nodes


class Cuts(NamedTuple):
    """Pairs of nodes (two rows) and edges to a label (one row), in random order."""

    edges: Edges
    weights: np.ndarray
    labels: np.ndarray  # int16; PAIR for edges between two nodes


def cuts(graph: Any, seed: int, dtype: Any = np.float32) -> Cuts:
    """Return the edges of a data.sparse.graphs.Graph in a random order."""
    pairs, count = len(graph.pairs), len(graph.pairs) + len(graph.terminals)
    order = np.random.default_rng(seed).permutation(count)
    lengths = np.where(order < pairs, 2, 1)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    rows = np.empty(starts[-1], np.uint32)
    first = np.concatenate([graph.pairs[:, 0], graph.terminals[:, 0]])
    rows[starts[:-1]] = first[order]
    rows[starts[1:][order < pairs] - 1] = graph.pairs[order[order < pairs], 1]
    labels = np.full(count, PAIR, np.int16)
    labels[pairs:] = graph.terminals[:, 1]
    weights = np.concatenate([graph.pair_weights, graph.terminal_weights])
    return Cuts(Edges(starts, rows), weights[order].astype(dtype), labels[order])


def start(graph: Any, dtype: Any = np.float32) -> np.ndarray:
    """Return a table whose rows have an equal share of every label."""
    return np.full((graph.nodes, graph.labels), 1 / graph.labels, dtype)


@njit(nogil=True, cache=True)
def gradient(table, data, e, t, grads):
    """Return the edge's cost; gradients are ± w/2, and 0 for equal shares."""
    kind, k, label = table.dtype.type, data.edges.starts[e], data.labels[e]
    half, apart = kind(0.5) * data.weights[e], kind(0)
    u, v = data.edges.rows[k], data.edges.rows[k + 1 if label == PAIR else k]
    for d in range(table.shape[1]):
        other = table[v, d] if label == PAIR else kind(d == label)
        gap = table[u, d] - other
        apart += abs(gap)
        grads[0, d] = half * np.sign(gap)
        if label == PAIR:
            grads[1, d] = -grads[0, d]
    return half * apart, apart > 0


@njit(nogil=True, cache=True)
def move(table, row, grads, s, rate):
    """Replace the gradient grads[s] of a row x by the change of the row.

    The row moves to the point of the simplex that is nearest to x - rate · gradient.

    Concurrent updates of several workers may give shares below 0. The shares still sum
    to 1, and the next update of the row projects it onto the simplex.
    """
    point = grads[s]
    for d in range(len(point)):
        point[d] = table[row, d] - rate * point[d]
    project(point)
    for d in range(len(point)):
        point[d] -= table[row, d]


@njit(nogil=True, cache=True)
def project(point):
    """Project a point onto the simplex in place: max(y - θ, 0), whose sum is 1.

    θ is computed from the numbers that stay above 0 (Duchi 2008). Few labels need no
    sort: a number that θ sets to 0 stays 0 (Michelot 1986), so θ is recomputed from the
    numbers above it until none is removed.
    """
    top = point[0]
    for y in point:
        top = max(top, y)
    total = 0.0  # float64, so that the shares sum to 1 to the last digit
    for d in range(len(point)):
        point[d] -= top  # the projection is the same, and sums keep their precision
        total += point[d]
    left, before, theta = len(point), len(point) + 1, 0.0
    while 0 < left < before:  # left is 0 for NaN
        before, theta = left, (total - 1.0) / left
        left, total = 0, 0.0
        for y in point:
            if y > theta:
                left += 1
                total += y
    for d in range(len(point)):
        point[d] = max(point[d] - theta, 0.0)


def objective(table: np.ndarray, data: Cuts) -> float:
    """Return the mean cost of the edges."""
    return cut_value(table, data) / len(data.weights)


@njit(nogil=True, cache=True)
def cut_value(table, data):
    """Return the cost of all edges in float64; at corners, the weight of cut edges."""
    total = 0.0
    starts, rows = data.edges.starts, data.edges.rows
    for e in range(len(data.weights)):
        k, label, apart = starts[e], data.labels[e], 0.0
        for d in range(table.shape[1]):
            if label == PAIR:
                apart += abs(np.float64(table[rows[k], d]) - table[rows[k + 1], d])
            else:
                apart += abs(np.float64(table[rows[k], d]) - (d == label))
        total += 0.5 * data.weights[e] * apart
    return total


def rounded(table: np.ndarray) -> np.ndarray:
    """Return the label with the largest share of each node; the first one of equals."""
    labels: np.ndarray = table.argmax(axis=1)
    return labels


def corners(labels: np.ndarray, count: int, dtype: Any = np.float32) -> np.ndarray:
    """Return the table in which each node has share 1 of its label."""
    return np.eye(count, dtype=dtype)[labels]
