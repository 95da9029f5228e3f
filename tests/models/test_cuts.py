"""Cuts edge by edge: gradients, the simplex, values."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dml.data.graphs import generated
from dml.models import cuts


def simplex(rows, labels, seed=0):
    draws = np.random.default_rng(seed).dirichlet(np.ones(labels), rows)
    return draws.astype(np.float32)


def test_edges_are_all_of_the_graphs_in_an_order_of_the_seed():
    graph = generated((3, 4), 3, 0)
    data, other = cuts.cuts(graph, 0), cuts.cuts(graph, 1)
    starts, rows = data.edges
    found = sorted(
        (*rows[starts[e] : starts[e + 1]], int(data.labels[e]), data.weights[e])
        for e in range(len(data.labels))
    )
    expected = [
        (*pair, cuts.PAIR, w)
        for pair, w in zip(graph.pairs, graph.pair_weights, strict=True)
    ] + [
        (*end, w)
        for end, w in zip(graph.terminals, graph.terminal_weights, strict=True)
    ]
    assert found == sorted(expected)
    assert rows.dtype == np.uint32 and not np.array_equal(rows, other.edges.rows)


def test_gradients_are_jax_own_and_their_mean_is_the_objectives():
    graph = generated((3, 4), 3, 0)
    data, table = cuts.cuts(graph, 0), simplex(graph.nodes, 3)

    def whole(x):
        u, v = graph.pairs.T
        node, label = graph.terminals.T
        between = jnp.abs(x[u] - x[v]).sum(axis=1) @ graph.pair_weights
        away = jnp.abs(x[node] - jnp.eye(3)[label]).sum(axis=1) @ graph.terminal_weights
        return 0.5 * (between + away) / len(data.weights)

    total, lost, grads = np.zeros_like(table), 0.0, np.empty((2, 3), np.float32)
    for e in range(len(data.weights)):
        loss, moves = cuts.gradient(table, data, e, 0, grads)
        assert moves
        lost += loss
        rows = data.edges.rows[data.edges.starts[e] : data.edges.starts[e + 1]]
        total[rows] += grads[: len(rows)]
    expected = jax.grad(whole)(jnp.asarray(table))
    np.testing.assert_allclose(total / len(data.weights), expected, atol=1e-6)
    np.testing.assert_allclose(lost / len(data.weights), whole(table), rtol=1e-5)
    np.testing.assert_allclose(cuts.objective(table, data), whole(table), rtol=1e-5)


def test_an_edge_that_costs_nothing_moves_nothing():
    graph = generated((3, 4), 3, 0)
    data = cuts.cuts(graph, 0)
    table = cuts.corners(np.zeros(graph.nodes, int), 3)
    grads = np.empty((2, 3), np.float32)
    for e in range(len(data.weights)):
        loss, moves = cuts.gradient(table, data, e, 0, grads)
        assert moves == (data.labels[e] > 0) and loss == data.weights[e] * moves


@settings(max_examples=200, deadline=None)
@given(
    st.integers(2, 8).flatmap(
        lambda k: st.lists(st.floats(-50, 50, width=32), min_size=k, max_size=k)
    )
)
def test_a_row_moves_to_the_nearest_point_of_the_simplex(gradient):
    labels = len(gradient)
    table, grads = simplex(1, labels), np.array([gradient], np.float32)
    rate = np.float32(0.3)
    y = table[0].astype(np.float64) - rate * grads[0]
    cuts.move(table, 0, grads, 0, rate)
    point = table[0] + grads[0]
    assert abs(point.sum() - 1) < 1e-6 and point.min() > -1e-6 and point.max() <= 1
    # nearest (Karush, Kuhn, Tucker): y - point is alike where point > 0, elsewhere less
    away = y - point
    assert np.ptp(away[point > 1e-4]) < 1e-4
    assert (away <= away[point.argmax()] + 1e-4).all()


def test_ties_round_to_the_first_label():
    assert cuts.rounded(np.array([[0.4, 0.4, 0.2], [0, 0.5, 0.5]])).tolist() == [0, 1]
