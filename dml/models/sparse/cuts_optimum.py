"""The least cuts of a graph, to compare with: by flow, or by primal and dual.

A graph in, an Optimum out. Two labels: the exact cut, as scipy's maximum flow. More:
the linear relaxation, to a gap that is measured, and the cut it is rounded to.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from dml.models.sparse.cuts import corners, cut_value, cuts, project, rounded
from dml.types import BadInput

UNITS = 2**30 - 1  # of the least cut: scipy's int32 holds an edge's flow and its rest
TAME = 1e-3  # of a node's costs: where its pairs weigh less, they are not its rate
EVERY = 50  # rounds between two looks at the gap


class Optimum(NamedTuple):
    """Values are sums over edges; `least` is below every cut's value."""

    least: float
    table_NxK: np.ndarray  # float64: where the relaxation has its value
    value: float  # of the relaxation at the table: least ≤ optimum ≤ value
    labels: np.ndarray
    cut: float  # the value of those labels


def optimum(graph: Any, gap: float = 1e-3, rounds: int = 5000) -> Optimum:
    """Return the relaxation's optimum (Chambolle 2011), to a share `gap` of its value,
    or for so many rounds.

    Steps are those of each row and edge (Pock 2011, lemma 2): the rates of a node and
    of an edge are 1 over the weights that they see.
    """
    data = cuts(graph, 0, np.float64)
    costs_NxK, constant = _costs(graph)
    weights = graph.pair_weights.astype(np.float64)
    x_NxK = np.full(costs_NxK.shape, 1 / graph.labels)
    beyond_NxK, dual_PxK = x_NxK.copy(), np.zeros((len(weights), graph.labels))
    seen = np.bincount(graph.pairs.ravel(), np.repeat(weights, 2), graph.nodes)
    least_seen = np.maximum(TAME * np.ptp(costs_NxK, axis=1), TAME)
    rates = 1 / np.maximum(seen, least_seen)
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
    """Return the least cut of two labels by maximum flow, label 0 being the source.

    Weights become integers, rounded down: what flows is at most the least cut, and
    all of it where they were integers, and not too large.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    if graph.labels != 2:
        raise BadInput(
            f"expected two labels for a maximum flow, got {graph.labels}; "
            "use the relaxation's optimum"
        )
    data, source, size = cuts(graph, 0, np.float64), graph.nodes, graph.nodes + 2
    liked = _costs(graph)[0].argmin(axis=1)
    tried = [(worth(each, data), each) for each in (0 * liked, 0 * liked + 1, liked)]
    bound, labels = min(tried, key=lambda each: each[0])
    node, label = graph.terminals.T
    weights = np.concatenate([graph.pair_weights, graph.terminal_weights])
    units = UNITS / bound if bound else 1.0
    units = np.floor(units) if units > 1 else units
    # no least cut has an edge above the bound, so its weight may as well be the bound
    whole = np.floor(np.minimum(weights.astype(np.float64), bound) * units)
    u, v = np.concatenate([graph.pairs.T, [node, source + label]], axis=1)
    both_ways = np.r_[whole, whole].astype(np.int32), (np.r_[u, v], np.r_[v, u])
    capacities = coo_array(both_ways, shape=(size, size)).tocsr()
    found = maximum_flow(capacities, source, source + 1)
    rest = capacities - found.flow
    rest.eliminate_zeros()
    reached = breadth_first_order(rest, source, return_predecessors=False)
    parted = np.ones(size, np.int64)
    parted[reached] = 0
    # where weights were rounded to nothing, the flow's own cut may be the worse
    if (value := worth(parted[: graph.nodes], data)) <= bound:
        bound, labels = value, parted[: graph.nodes]
    least = float(found.flow_value / units)
    return Optimum(least, corners(labels, 2, np.float64), bound, labels, bound)


def worth(labels: np.ndarray, data: Any) -> float:
    """Return what a cut in two costs."""
    return float(cut_value(corners(labels, 2, np.float64), data))


def _costs(graph: Any) -> tuple[np.ndarray, float]:
    """Return what each node's labels cost, and a constant: w(1 - x_k) is -w x_k + w."""
    costs_NxK = np.zeros((graph.nodes, graph.labels))
    np.subtract.at(costs_NxK, tuple(graph.terminals.T), graph.terminal_weights)
    return costs_NxK, float(graph.terminal_weights.sum(dtype=np.float64))


@njit(nogil=True, cache=True)
def _forces(pairs, weights, dual, costs, forces):
    """forces ← the relaxation's gradient by x at this dual: costs + Aᵀ dual."""
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
    """Raise the dual by what is between nodes, lower x by the forces, go beyond it."""
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
