"""Multi-way cuts edge by edge: against brute force, flow and the relaxation."""

from itertools import product

import numpy as np
import pytest

from dml.data.sparse.graphs import WeightedGraph
from dml.models.sparse import cuts as module
from dml.models.sparse.cuts import (
    PAIR,
    corner_table,
    cut_value,
    cuts,
    gradient,
    largest_labels,
)
from dml.models.sparse.cuts_optimum import flow, optimum
from dml.types import BadInput


def drawn(nodes, labels, seed, whole=False):
    """A graph of half of all pairs and of half of all terminals, of uneven weights."""
    rng = np.random.default_rng(seed)
    pairs = np.argwhere(np.triu(rng.random((nodes, nodes)) < 0.6, 1))
    ends = np.argwhere(rng.random((nodes, labels)) < 0.6)
    made = [3 * rng.random(len(part)) for part in (pairs, ends)]
    weights = [np.float32(np.ceil(part) if whole else part) for part in made]
    parts = pairs.astype(np.int32), weights[0], ends.astype(np.int32), weights[1]
    return WeightedGraph(nodes, labels, *parts)


def every_cut(graph):
    """Yield all labelings and what they cost."""
    u, v = graph.pairs.T
    node, label = graph.terminals.T
    for labels in product(range(graph.labels), repeat=graph.nodes):
        at = np.array(labels)
        parted = graph.pair_weights[at[u] != at[v]].sum(dtype=float)
        yield at, parted + graph.terminal_weights[at[node] != label].sum(dtype=float)


@pytest.mark.parametrize("labels", [2, 3, 7])
def test_a_projected_point_is_the_nearest_of_the_simplex(labels):
    rng = np.random.default_rng(labels)
    for scale in (0.1, 1, 30):
        asked = (scale * rng.standard_normal(labels)).astype(np.float32)
        point = asked.copy()
        module.project(point)
        assert point.min() >= 0 and point.sum(dtype=float) == pytest.approx(1, abs=1e-6)
        # the nearest, and only it, has every other point z at an angle of 90° or more
        others_PxK = np.concatenate(
            [np.eye(labels), rng.dirichlet(np.ones(labels) / 2, 2000)]
        )
        angles = (others_PxK - point) @ (asked.astype(float) - point)
        assert angles.max() <= 1e-6 * max(1, scale**2)


def test_moves_of_any_size_leave_a_row_on_the_simplex():
    rng = np.random.default_rng(4)
    table_NxK = np.full((1, 3), 1 / 3, np.float32)
    grads_2xK = np.empty((2, 3), np.float32)
    for rate in np.float32([1e-4, 1e-2, 1, 10, 1e4] * 200):
        grads_2xK[1] = rng.standard_normal(3)
        wanted = table_NxK[0] - rate * grads_2xK[1]
        module.move(table_NxK, 0, grads_2xK, 1, rate)
        table_NxK[0] += grads_2xK[1]
        assert abs(table_NxK.sum(dtype=float) - 1) < 1e-6 and table_NxK.min() > -1e-6
        module.project(wanted)
        np.testing.assert_allclose(table_NxK[0], wanted, atol=1e-6)
    point = np.float32([np.nan, 0, 1])
    module.project(point)
    assert np.isnan(point).any()


@pytest.mark.parametrize("labels", [2, 3])
def test_at_corners_a_cut_has_its_value(labels):
    graph = drawn(5, labels, 2)
    data = cuts(graph, 0)
    assert not np.array_equal(data.weights, cuts(graph, 1).weights)
    for at, cost in every_cut(graph):
        table_NxK = corner_table(at, labels)
        assert cut_value(table_NxK, data) == pytest.approx(cost, rel=1e-6)
        np.testing.assert_array_equal(largest_labels(table_NxK), at)


@pytest.mark.parametrize("seed", range(6))
def test_the_flow_is_the_least_of_all_cuts(seed):
    graph = drawn(7, 2, seed, whole=seed % 2)
    least = min(cost for _, cost in every_cut(graph))
    found = flow(graph)
    # weights in units of 1e-9 of the cut, rounded down
    assert found.cut == found.value == pytest.approx(least, rel=1e-6)
    assert pytest.approx(least, rel=1e-6) == found.lower_bound <= found.value
    if seed % 2:
        assert found.lower_bound == found.value == least
    np.testing.assert_array_equal(largest_labels(found.table_NxK), found.labels)
    table_NxK = corner_table(found.labels, 2)
    assert cut_value(table_NxK, cuts(graph, 3)) == pytest.approx(least, rel=1e-6)


def test_a_graph_in_which_nothing_must_be_cut_has_a_flow_of_0():
    pairs, ends = np.int32([[0, 1], [2, 3]]), np.int32([[0, 0], [2, 1]])
    graph = WeightedGraph(4, 2, pairs, np.ones(2, "f4"), ends, np.ones(2, "f4"))
    found = flow(graph)
    assert found.cut == found.lower_bound == 0
    np.testing.assert_array_equal(found.labels, [0, 0, 1, 1])
    with pytest.raises(BadInput, match="two labels for a maximum flow, got 3"):
        flow(drawn(4, 3, 0))


@pytest.mark.parametrize("labels, seed", [(2, 0), (2, 1), (3, 2), (3, 3), (4, 4)])
def test_the_relaxation_is_below_all_cuts_and_its_gap_as_stated(labels, seed):
    graph = drawn(6, labels, seed)
    least = min(cost for _, cost in every_cut(graph))
    found = optimum(graph, gap=1e-4)
    assert found.lower_bound <= found.value <= found.lower_bound * (1 + 2e-4)
    assert found.lower_bound <= least * (1 + 1e-9) and found.cut >= least * (1 - 1e-9)
    np.testing.assert_allclose(found.table_NxK.sum(axis=1), 1, rtol=1e-9)
    assert found.table_NxK.min() >= 0
    data = cuts(graph, 0, np.float64)
    assert cut_value(found.table_NxK, data) == pytest.approx(found.value)
    corners_NxK = corner_table(found.labels, labels)
    assert cut_value(corners_NxK, data) == pytest.approx(found.cut)
    if labels == 2:  # then the relaxation is exact
        assert found.lower_bound == pytest.approx(least, rel=2e-4)


def test_an_edge_with_nothing_between_moves_nothing():
    assert (module.start(drawn(5, 4, 0)) == np.full((5, 4), 0.25, np.float32)).all()
    graph = drawn(5, 3, 0)
    data, table_NxK = cuts(graph, 0), corner_table(np.zeros(5, int), 3)
    grads_2xK = np.empty((2, 3), np.float32)
    for e, label in enumerate(data.labels):
        loss, moves = gradient(table_NxK, data, e, 0, grads_2xK)
        cut = label not in (PAIR, 0)
        assert moves == cut and loss == pytest.approx(data.weights[e] if cut else 0)
