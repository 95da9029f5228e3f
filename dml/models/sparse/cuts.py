"""Multi-way graph cuts (Niu 2011, section 2), edge by edge.

    objective = mean of w ½ |x_u - x_v|₁ over pairs, w ½ |x_u - e_k|₁ over terminals

A row x_u of the table has the shares of K labels in node u: a point of the simplex,
whose corner e_k is label k. A terminal is an edge from a node to a label. If all rows
are corners, an edge costs its weight if its ends have different labels, and 0
otherwise. The minimum of the objective, times the number of edges, is thus a lower
bound of the minimum cut: the problem is the linear relaxation of multi-way cuts.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from dml.models.sparse.problem import leave_table as settle
from dml.models.sparse.problem import same_data as with_rate
from dml.models.sparse.problem import zero_decay as decay
from dml.types import Edges

__all__ = ["decay", "gradient", "move", "objective", "with_rate", "settle"]
PAIR = -1  # in place of a label: the edge is between two nodes


class Cuts(NamedTuple):
    """Pairs of nodes (two rows) and terminals (one row), in random order."""

    edges: Edges
    weights: np.ndarray
    labels: np.ndarray  # int16; PAIR for edges between two nodes


def cuts(graph: Any, seed: int, dtype: Any = np.float32) -> Cuts:
    """Return the edges of a data.sparse.graphs.Graph in a random order."""
    pairs = len(graph.pairs)
    count = pairs + len(graph.terminals)
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
    """Return the cost of edge e; gradients are ± w/2, and 0 for equal shares."""
    scalar, k, label = table.dtype.type, data.edges.starts[e], data.labels[e]
    half_weight = scalar(0.5) * data.weights[e]
    distance = scalar(0)
    u, v = data.edges.rows[k], data.edges.rows[k + 1 if label == PAIR else k]
    for d in range(table.shape[1]):
        other = table[v, d] if label == PAIR else scalar(d == label)
        gap = table[u, d] - other
        distance += abs(gap)
        grads[0, d] = half_weight * np.sign(gap)
        if label == PAIR:
            grads[1, d] = -grads[0, d]
    return half_weight * distance, distance > 0


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

    θ is computed from the elements that are positive in the projection (Duchi 2008).
    They are found without sorting: starting with all elements, those that are not above
    θ are removed and θ is recomputed, until none is removed (Michelot 1986).
    """
    largest = point[0]
    for y in point:
        largest = max(largest, y)
    total = 0.0  # float64, so that the shares sum to 1 to the last digit
    for d in range(len(point)):
        point[d] -= largest  # the projection is the same, and sums keep their precision
        total += point[d]
    count, before, theta = len(point), len(point) + 1, 0.0
    while 0 < count < before:  # count is 0 if an element is NaN
        before, theta = count, (total - 1.0) / count
        count, total = 0, 0.0
        for y in point:
            if y > theta:
                count += 1
                total += y
    for d in range(len(point)):
        point[d] = max(point[d] - theta, 0.0)


def objective(table: np.ndarray, data: Cuts) -> float:
    """Return the mean cost of the edges."""
    return cut_value(table, data) / len(data.weights)


@njit(nogil=True, cache=True)
def cut_value(table, data):
    """Return the cost of all edges in float64; for corners, the weight of cut edges."""
    total = 0.0
    starts, rows = data.edges.starts, data.edges.rows
    for e in range(len(data.weights)):
        k, label, distance = starts[e], data.labels[e], 0.0
        for d in range(table.shape[1]):
            if label == PAIR:
                distance += abs(np.float64(table[rows[k], d]) - table[rows[k + 1], d])
            else:
                distance += abs(np.float64(table[rows[k], d]) - (d == label))
        total += 0.5 * data.weights[e] * distance
    return total


def largest_labels(table: np.ndarray) -> np.ndarray:
    """Return the label with the largest share in each node; the lowest of equals."""
    labels: np.ndarray = table.argmax(axis=1)
    return labels


def corner_table(labels: np.ndarray, count: int, dtype: Any = np.float32) -> np.ndarray:
    """Return the table in which the label of each node has share 1."""
    return np.eye(count, dtype=dtype)[labels]
