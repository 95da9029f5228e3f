"""GRADIENT: multi-way graph cuts (Niu 2011, section 2), edge by edge.

    objective = mean of w ½ |x_u - x_v|₁ over pairs, w ½ |x_u - e_k|₁ over terminals

A row x_u of the table lies on the simplex: its shares of K labels. At a corner it is a
label, and an edge then costs its weight where it is cut. So the objective times the
number of edges is a cut's value, or below it: this is a cut's linear relaxation.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from dml.models.descent import unpaced as paced
from dml.models.descent import unsettled as settle
from dml.types import Edges

__all__ = ["gradient", "move", "objective", "paced", "settle"]
PAIR = -1  # as a label: the edge goes to a node


class Cuts(NamedTuple):
    """Pairs of nodes (two rows) and edges to a label (one row), in a drawn order."""

    edges: Edges
    weights: np.ndarray
    labels: np.ndarray  # int8 or int16; PAIR where there are two nodes


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
    k, two = data.edges.starts[e], data.labels[e] == PAIR
    u, v = data.edges.rows[k], data.edges.rows[k + 1 if two else k]
    half = table.dtype.type(0.5) * data.weights[e]
    zero, one = table.dtype.type(0), table.dtype.type(1)
    apart = zero
    for d in range(table.shape[1]):
        if two:
            gap = table[u, d] - table[v, d]
        else:
            gap = table[u, d] - (one if d == data.labels[e] else zero)
        apart += abs(gap)
        slope = half if gap > zero else (-half if gap < zero else zero)
        grads[0, d] = slope
        if two:
            grads[1, d] = -slope
    return half * apart, apart > zero


@njit(nogil=True, cache=True)
def move(table, row, grads, s, rate):
    """grads[s] ← the nearest point of the simplex to x - rate · gradient, less x.

    The point is max(y - θ, 0), where θ makes its sum 1 (Duchi 2008, section 3). For few
    labels no sort is needed: those that θ puts at 0 stay there (Michelot 1986), so θ is
    taken of all of them, of those above it, ... until no more falls out.
    """
    labels = table.shape[1]
    top = table.dtype.type(-np.inf)
    for d in range(labels):
        grads[s, d] = table[row, d] - rate * grads[s, d]
        top = max(top, grads[s, d])
    total = 0.0  # float64, so that the point's sum is 1 to a share's last digit
    for d in range(labels):
        grads[s, d] -= top  # the point is the same, and no sum outgrows its digits
        total += grads[s, d]
    left, before, theta = labels, labels + 1, 0.0
    while left < before:
        before = left
        theta = (total - 1.0) / before
        left, total = 0, 0.0
        for d in range(labels):
            if grads[s, d] > theta:
                left += 1
                total += grads[s, d]
    for d in range(labels):
        point = table.dtype.type(max(grads[s, d] - theta, 0.0))
        grads[s, d] = point - table[row, d]


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
