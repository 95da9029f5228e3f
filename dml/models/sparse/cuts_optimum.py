"""Minimum cuts of a graph for comparison: by maximum flow, or by a primal-dual method.

For two labels, `flow` returns the minimum cut by SciPy's maximum flow. For more labels,
`optimum` solves the linear relaxation to a measured gap, and rounds it to a cut.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from dml.models.sparse.cuts import (
    corner_table,
    cut_value,
    cuts,
    largest_labels,
    project,
)
from dml.types import BadInput

# value of the minimum cut in integer units: flow and residual then fit into int32
INTEGER_CUT = 2**30 - 1
MIN_SUM = 1e-3  # minimum sum of a node's weights in its step size, relative to costs
ROUNDS_PER_CHECK = 50  # rounds between two measurements of the gap


class Optimum(NamedTuple):
    """A solution of the relaxation, rounded to a cut; values are sums over edges.

    Attributes:
      lower_bound: Lower bound of the relaxation, and thus of every cut.
      table_NxK: Solution of the relaxation, float64.
      value: Value of the relaxation at table_NxK: lower_bound ≤ optimum ≤ value.
      labels: Labels of the rounded cut.
      cut: Value of the rounded cut.
    """

    lower_bound: float
    table_NxK: np.ndarray
    value: float
    labels: np.ndarray
    cut: float


def optimum(graph: Any, gap: float = 1e-3, rounds: int = 5000) -> Optimum:
    """Return the relaxation's optimum by a primal-dual method (Chambolle 2011).

    Each node and each edge has its own step size, 1 over the sum of the weights at the
    node or edge (Pock 2011, lemma 2).

    Args:
      graph: The graph.
      gap: Relative gap between value and lower bound at which the method stops.
      rounds: Maximum number of rounds.
    """
    data = cuts(graph, 0, np.float64)
    costs_NxK, constant = _costs(graph)
    weights = graph.pair_weights.astype(np.float64)
    x_NxK = np.full(costs_NxK.shape, 1 / graph.labels)
    extrapolated_NxK = x_NxK.copy()
    dual_PxK = np.zeros((len(weights), graph.labels))
    sums = np.bincount(graph.pairs.ravel(), np.repeat(weights, 2), graph.nodes)
    least_sums = np.maximum(MIN_SUM * np.ptp(costs_NxK, axis=1), MIN_SUM)
    rates = 1 / np.maximum(sums, least_sums)
    grads_NxK = np.empty_like(x_NxK)
    constants = graph.pairs, weights, costs_NxK, rates
    lower_bound, value = -np.inf, np.inf
    for _ in range(0, rounds, ROUNDS_PER_CHECK):
        _run_rounds(
            constants, (x_NxK, extrapolated_NxK, dual_PxK, grads_NxK), ROUNDS_PER_CHECK
        )
        _set_gradient(graph.pairs, weights, dual_PxK, costs_NxK, grads_NxK)
        lower_bound = max(lower_bound, float(grads_NxK.min(axis=1).sum()) + constant)
        value = float(cut_value(x_NxK, data))
        if value - lower_bound <= gap * value:
            break
    labels = largest_labels(x_NxK)
    cut = float(cut_value(corner_table(labels, graph.labels, np.float64), data))
    return Optimum(lower_bound, x_NxK, value, labels, cut)


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
            "call `optimum`"
        )
    data, source, size = cuts(graph, 0, np.float64), graph.nodes, graph.nodes + 2
    cheapest = _costs(graph)[0].argmin(axis=1)  # label of each node by terminals only
    guesses = (np.zeros_like(cheapest), np.ones_like(cheapest), cheapest)
    values = [(value_of_labels(guess, data), guess) for guess in guesses]
    bound, labels = min(values, key=lambda pair: pair[0])  # upper bound of the cut
    node, label = graph.terminals.T
    weights = np.concatenate([graph.pair_weights, graph.terminal_weights])
    units = INTEGER_CUT / bound if bound else 1.0
    units = np.floor(units) if units > 1 else units
    # an edge above the bound is in no minimum cut, so weights are limited to the bound
    integers = np.floor(np.minimum(weights.astype(np.float64), bound) * units)
    u, v = np.concatenate([graph.pairs.T, [node, source + label]], axis=1)
    both_directions = (np.r_[u, v], np.r_[v, u])
    entries = np.r_[integers, integers].astype(np.int32), both_directions
    capacities = coo_array(entries, shape=(size, size)).tocsr()
    maximum = maximum_flow(capacities, source, source + 1)
    residual = capacities - maximum.flow
    residual.eliminate_zeros()
    reached = breadth_first_order(residual, source, return_predecessors=False)
    side = np.ones(size, np.int64)
    side[reached] = 0
    # weights may be rounded to 0; a guess may then be better than the cut of the flow
    if (value := value_of_labels(side[: graph.nodes], data)) <= bound:
        bound, labels = value, side[: graph.nodes]
    lower_bound = float(maximum.flow_value / units)
    return Optimum(
        lower_bound, corner_table(labels, 2, np.float64), bound, labels, bound
    )


def value_of_labels(labels: np.ndarray, data: Any) -> float:
    """Return the value of a cut with two labels."""
    return float(cut_value(corner_table(labels, 2, np.float64), data))


def _costs(graph: Any) -> tuple[np.ndarray, float]:
    """Return the costs of terminals: costs_NxK, and a constant.

    A terminal to label k costs w (1 - x_k): it adds -w to costs_NxK and w to the
    constant.
    """
    costs_NxK = np.zeros((graph.nodes, graph.labels))
    np.subtract.at(costs_NxK, tuple(graph.terminals.T), graph.terminal_weights)
    return costs_NxK, float(graph.terminal_weights.sum(dtype=np.float64))


@njit(nogil=True, cache=True)
def _set_gradient(pairs, weights, dual, costs, grads):
    """Set grads to the gradient of the saddle function by x: costs + Aᵀ dual."""
    for n in range(len(costs)):
        for d in range(costs.shape[1]):
            grads[n, d] = costs[n, d]
    for e in range(len(weights)):
        for d in range(dual.shape[1]):
            term = weights[e] * dual[e, d]
            grads[pairs[e, 0], d] += term
            grads[pairs[e, 1], d] -= term


@njit(nogil=True, cache=True)
def _run_rounds(constants, variables, rounds):
    """Run primal-dual rounds: update dual, then x by projection, then extrapolate x.

    Args:
      constants: Pairs, weights, costs and step sizes of nodes.
      variables: x, extrapolated x, the dual, and the gradient by x; updated in place.
      rounds: Number of rounds.
    """
    pairs, weights, costs, rates = constants
    x, extrapolated, dual, grads = variables
    labels = x.shape[1]
    point = np.empty(labels)
    for _ in range(rounds):
        for e in range(len(weights)):
            u, v = pairs[e, 0], pairs[e, 1]
            for d in range(labels):
                # 0.5 is the step size of the edge, 1 / 2w, times w
                updated = dual[e, d] + 0.5 * (extrapolated[u, d] - extrapolated[v, d])
                dual[e, d] = min(max(updated, -0.5), 0.5)
        _set_gradient(pairs, weights, dual, costs, grads)
        for n in range(len(x)):
            for d in range(labels):
                point[d] = x[n, d] - rates[n] * grads[n, d]
            project(point)
            for d in range(labels):
                extrapolated[n, d] = 2 * point[d] - x[n, d]
                x[n, d] = point[d]
