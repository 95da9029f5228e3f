"""Sides of graphs: edges join active and passive ranks, and connect all ranks."""

import numpy as np
import pytest

from dml.types import BadInput
from dml.wire.plans.averaging.graphs import topology
from dml.wire.plans.averaging.mixing import matrix
from dml.wire.plans.averaging.sides import sides

BIPARTITE = [
    ("ring", 8),
    ("hypercube", 16),
    ("torus:4x6", 24),
    ("tree", 9),
    ("star", 5),
]
OTHERS = [("ring", 7), ("complete", 6), ("exponential", 12), ("grid:2x3", 5)]


def joined(found):
    edges_PxP = np.zeros((len(found), len(found)), bool)
    for rank, side in enumerate(found):
        edges_PxP[rank, side.neighbours] = True
    return edges_PxP


@pytest.mark.parametrize("name, size", BIPARTITE + OTHERS)
def test_edges_join_active_with_passive_ranks_and_connect_all(name, size):
    graph, found = topology(name, size), sides(topology(name, size))
    edges_PxP = joined(found)
    near_PxP = np.sum([matrix(graph, t) for t in range(graph.period)], 0) != 0
    assert np.array_equal(edges_PxP, edges_PxP.T)
    assert not (edges_PxP & ~(near_PxP | near_PxP.T)).any()
    active = np.array([side.active for side in found])
    assert not edges_PxP[active][:, active].any()
    assert not edges_PxP[~active][:, ~active].any()
    if (name, size) in BIPARTITE:
        assert edges_PxP.sum() == near_PxP.sum() - size  # without the diagonal
    assert np.linalg.matrix_power(edges_PxP + np.eye(size), size).all()


def test_one_rank_has_no_neighbours():
    assert sides(topology("complete", 1)) == [(False, [])]


@pytest.mark.parametrize(
    "name, size, message",
    [
        ("random_groups:2", 4, "whose rounds repeat"),
        ("torus:3x4", 12, "connect all 12 ranks"),
    ],
)
def test_graphs_without_two_connected_sides_are_refused(name, size, message):
    with pytest.raises(BadInput, match=message):
        sides(topology(name, size))
