"""Least cuts, against every labelling of small graphs."""

from itertools import product

import numpy as np
import pytest

from dml.data.sparse.graphs import generated
from dml.models.sparse.cuts import corners, cut_value, cuts
from dml.models.sparse.cuts_optimum import flow, optimum
from dml.types import BadInput


def values(graph):
    data = cuts(graph, 0, np.float64)
    return [
        cut_value(corners(np.array(labels), graph.labels, np.float64), data)
        for labels in product(range(graph.labels), repeat=graph.nodes)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_two_labels_flow_the_least_cut_and_the_relaxation_has_its_value(seed):
    graph = generated((2, 4), 2, seed)
    least = min(values(graph))
    found = flow(graph)
    assert found.cut == found.value == pytest.approx(least, rel=1e-12)
    assert least * (1 - 1e-6) <= found.least <= least * (1 + 1e-12)
    relaxed = optimum(graph, gap=1e-6)
    assert relaxed.least - 1e-9 <= least <= relaxed.value + 1e-9
    assert relaxed.value - relaxed.least <= 1e-6 * relaxed.value


@pytest.mark.parametrize("seed", range(3))
def test_three_labels_relaxed_are_below_every_labelling(seed):
    graph = generated((2, 3), 3, seed)
    found, every = optimum(graph, gap=1e-6), values(graph)
    assert found.least <= min(every) * (1 + 1e-9)
    assert any(found.cut == pytest.approx(value, rel=1e-12) for value in every)
    shares = found.table_NxK
    assert shares.min() >= 0 and np.allclose(shares.sum(axis=1), 1, atol=1e-12)


def test_whole_weights_flow_exactly():
    graph = generated((3, 3), 2, 0)
    rng = np.random.default_rng(0)
    whole = rng.integers(1, 9, len(graph.pairs)).astype(np.float32)
    own = rng.integers(1, 9, len(graph.terminals)).astype(np.float32)
    graph = graph._replace(pair_weights=whole, terminal_weights=own)
    found = flow(graph)
    assert found.least == found.value == min(values(graph))


def test_a_larger_flow_and_relaxation_agree():
    graph = generated((20, 20), 2, 0)
    exact, relaxed = flow(graph), optimum(graph)
    assert relaxed.least <= exact.value * (1 + 1e-9)
    assert exact.least <= relaxed.value * (1 + 1e-9)


def test_what_cannot_be_found_is_said():
    graph = generated((4, 4), 3, 0)
    with pytest.raises(BadInput, match="expected two labels for a maximum flow, got 3"):
        flow(graph)
