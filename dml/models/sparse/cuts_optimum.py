"""Minimum cuts of a graph for comparison: by maximum flow, or by a primal-dual method.

For two labels, `flow` returns the exact cut by scipy's maximum flow. For more labels,
`optimum` solves the linear relaxation to a measured gap, and rounds it to a cut.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from dml.models.sparse.cuts import corners, cut_value, cuts, project, rounded
from dml.types import BadInput

UNITS = 2**30 - 1  # integer value of the minimum cut; flow and residual fit into int32
TAME = 1e-3  # least sum of weights for a node's step size, relative to its costs
EVERY = 50  # rounds between two measurements of the gap


class Optimum(NamedTuple):
    """A solution of the relaxation, rounded to a cut; values are sums over edges.

    Attributes:
      least: Lower bound of the relaxation, and thus of every cut.
      table_NxK: Solution of the relaxation, float64.
      value: Value of the relaxation at table_NxK: least ≤ optimum ≤ value.
      labels: Labels of the rounded cut.
      cut: Value of the rounded cut.
    """

    least: float
    table_NxK: np.ndarray
    value: float
    labels: np.ndarray
    cut: float


def optimum(graph: Any, gap: float = 1e-3, rounds: int = 5000) -> Optimum:
    """Return the relaxation's optimum by a primal-dual method (Chambolle 2011).

    Step sizes are those of each row and edge (Pock 2011, lemma 2): 1 over the sum of
    the weights at a node or edge.

    Args:
      graph: The graph.
      gap: Relative gap between value and lower bound at which the method stops.
      rounds: Greatest number of rounds.
    """
    data = cuts(graph, 0, np.float64)
    costs_NxK, constant = _costs(graph)
    weights = graph.pair_weights.astype(np.float64)
    x_NxK = np.full(costs_NxK.shape, 1 / graph.labels)
    beyond_NxK, dual_PxK = x_NxK.copy(), np.zeros((len(weights), graph.labels))
    sums = np.bincount(graph.pairs.ravel(), np.repeat(weights, 2), graph.nodes)
    least_sums = np.maximum(TAME * np.ptp(costs_NxK, axis=1), TAME)
    rates = 1 / np.maximum(sums, least_sums)
    forces_NxK = np.empty_like(x_NxK)
    fixed = graph.pairs, weights, costs_NxK, rates
    least, value = -np.inf, np.inf
    for _ in range(0, rounds, EVERY):
        _rounds(fixed, (x_NxK, beyond_NxK, dual_PxK, forces_NxK), EVERY)
        _forces(graph.pairs, weights, dual_PxK, costs_NxK, forces_NxK)
        least = max(least, float(forces_NxK.min(axis=1).sum()) + constant)
        value = float(cut_value(x_NxK, data))
        if value - least <= gap * value:
            break
    labels = rounded(x_NxK)
    cut = float(cut_value(corners(labels, graph.labels, np.float64), data))
    return Optimum(least, x_NxK, value, labels, cut)


def flow(graph: Any) -> Optimum:
    """Return the minimum cut of two labels by maximum flow; label 0 is the source.

    Weights are rounded down to integers, so the flow is at most the minimum cut; it is
    equal if the weights are integers and not too large.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    if graph.labels != 2:
        raise BadInput(
            f"expected two labels for a maximum flow, got {graph.labels}; "
            "use the relaxation's optimum"
        )
    data, source, size = cuts(graph, 0, np.float64), graph.nodes, graph.nodes + 2
    cheapest = _costs(graph)[0].argmin(axis=1)  # label of each node without its edges
    guesses = 0 * cheapest, 0 * cheapest + 1, cheapest
    values = [(value_of(guess, data), guess) for guess in guesses]
    bound, labels = min(values, key=lambda pair: pair[0])
    node, label = graph.terminals.T
    weights = np.concatenate([graph.pair_weights, graph.terminal_weights])
    units = UNITS / bound if bound else 1.0
    units = np.floor(units) if units > 1 else units
    # no minimum cut has an edge above the bound, so weights are limited to the bound
    integers = np.floor(np.minimum(weights.astype(np.float64), bound) * units)
    u, v = np.concatenate([graph.pairs.T, [node, source + label]], axis=1)
    both = np.r_[integers, integers].astype(np.int32), (np.r_[u, v], np.r_[v, u])
    capacities = coo_array(both, shape=(size, size)).tocsr()
    maximum = maximum_flow(capacities, source, source + 1)
    residual = capacities - maximum.flow
    residual.eliminate_zeros()
    reached = breadth_first_order(residual, source, return_predecessors=False)
    side = np.ones(size, np.int64)
    side[reached] = 0
    # weights may be rounded to 0: then a guess may be better than the cut of the flow
    if (value := value_of(side[: graph.nodes], data)) <= bound:
        bound, labels = value, side[: graph.nodes]
    least = float(maximum.flow_value / units)
    return Optimum(least, corners(labels, 2, np.float64), bound, labels, bound)


def value_of(labels: np.ndarray, data: Any) -> float:
    """Return the value of a cut with two labels."""
    return float(cut_value(corners(labels, 2, np.float64), data))


def _costs(graph: Any) -> tuple[np.ndarray, float]:
    """Return costs_NxK, and a constant: a terminal costs w (1 - x_k) = w - w x_k."""
    costs_NxK = np.zeros((graph.nodes, graph.labels))
    np.subtract.at(costs_NxK, tuple(graph.terminals.T), graph.terminal_weights)
    return costs_NxK, float(graph.terminal_weights.sum(dtype=np.float64))


@njit(nogil=True, cache=True)
def _forces(pairs, weights, dual, costs, forces):
    """forces ← the relaxation's gradient with respect to x: costs + Aᵀ dual."""
    for n in range(len(costs)):
        for d in range(costs.shape[1]):
            forces[n, d] = costs[n, d]
    for e in range(len(weights)):
        for d in range(dual.shape[1]):
            pull = weights[e] * dual[e, d]
            forces[pairs[e, 0], d] += pull
            forces[pairs[e, 1], d] -= pull


@njit(nogil=True, cache=True)
def _rounds(fixed, moving, rounds):
    """Run primal-dual rounds: update dual, then x by projection, then extrapolate x.

    Args:
      fixed: Pairs, weights, costs and step sizes of nodes.
      moving: x, its extrapolation, the dual and the gradient by x; changed in place.
      rounds: Number of rounds.
    """
    (pairs, weights, costs, rates), (x, beyond, dual, forces) = fixed, moving
    labels = x.shape[1]
    point = np.empty(labels)
    for _ in range(rounds):
        for e in range(len(weights)):
            u, v = pairs[e, 0], pairs[e, 1]
            for d in range(labels):
                # the edge's rate, 1 / 2w, times w
                raised = dual[e, d] + 0.5 * (beyond[u, d] - beyond[v, d])
                dual[e, d] = min(max(raised, -0.5), 0.5)
        _forces(pairs, weights, dual, costs, forces)
        for n in range(len(x)):
            for d in range(labels):
                point[d] = x[n, d] - rates[n] * forces[n, d]
            project(point)
            for d in range(labels):
                beyond[n, d] = 2 * point[d] - x[n, d]
                x[n, d] = point[d]
