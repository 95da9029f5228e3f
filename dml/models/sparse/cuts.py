"""Multi-way graph cuts (Niu 2011, section 2), edge by edge.

    objective = mean of w ½ |x_u - x_v|₁ over pairs, w ½ |x_u - e_k|₁ over terminals

A row x_u of the table lies on the simplex: its shares of K labels. At a corner it is a
label, and an edge then costs its weight where it is cut. So the objective times the
number of edges is a cut's value, or below it: this is a cut's linear relaxation.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from dml.models.sparse.problem import undecayed as decay
from dml.models.sparse.problem import unpaced as paced
from dml.models.sparse.problem import unsettled as settle
from dml.types import Edges

__all__ = ["decay", "gradient", "move", "objective", "paced", "settle"]
PAIR = -1  # as a label: the edge goes to a node


class Cuts(NamedTuple):
    """Pairs of nodes (two rows) and edges to a label (one row), in a drawn order."""

    edges: Edges
    weights: np.ndarray
    labels: np.ndarray  # int16; PAIR where there are two nodes


def cuts(graph: Any, seed: int, dtype: Any = np.float32) -> Cuts:
    """Make edges of a data.graphs.Graph, in an order that the seed draws."""
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
    """Make a table whose rows have an equal share of every label."""
    return np.full((graph.nodes, graph.labels), 1 / graph.labels, dtype)


@njit(nogil=True, cache=True)
def gradient(table, data, e, t, grads):
    """Return the edge's cost; grads are ± w/2, and 0 where there is nothing between."""
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
    """grads[s] ← the nearest point of the simplex to x - rate · gradient, less x.

    Changes of workers that did not see one another may leave shares below 0; they
    still sum to 1, and whoever is next to move the row brings it back.
    """
    point = grads[s]
    for d in range(len(point)):
        point[d] = table[row, d] - rate * point[d]
    project(point)
    for d in range(len(point)):
        point[d] -= table[row, d]


@njit(nogil=True, cache=True)
def project(point):
    """point ← the nearest one on the simplex: max(y - θ, 0), θ such that its sum is 1.

    θ is of all numbers that it leaves above 0 (Duchi 2008). For few labels no sort is
    needed: those that θ puts at 0 stay there (Michelot 1986), so θ is taken of all, of
    those above it, ... until no more falls out.
    """
    top = point[0]
    for y in point:
        top = max(top, y)
    total = 0.0  # float64, so that the sum is 1 to a share's last digit
    for d in range(len(point)):
        point[d] -= top  # the nearest is the same, and no sum outgrows its digits
        total += point[d]
    left, before, theta = len(point), len(point) + 1, 0.0
    while 0 < left < before:  # 0: of what is no number
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
    """Return the cost of all edges; at corners it is the weight of those that are cut.

    A float64, whatever the table.
    """
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
    """Return each node's label, the largest of its shares; the first of equal ones."""
    labels: np.ndarray = table.argmax(axis=1)
    return labels


def corners(labels: np.ndarray, count: int, dtype: Any = np.float32) -> np.ndarray:
    """Return the table of so many labels at which every node has its own."""
    return np.eye(count, dtype=dtype)[labels]
