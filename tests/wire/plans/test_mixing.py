"""Topologies of averaging for every number of ranks: arithmetic, no communication."""

import numpy as np
import pytest

from dml.types import BadInput
from dml.wire.plans.averaging.contraction import rounds_to
from dml.wire.plans.averaging.graphs import TOPOLOGIES, topology
from dml.wire.plans.averaging.mixing import (
    NO_RANK,
    edges,
    gap,
    is_column_stochastic,
    is_doubly_stochastic,
    is_row_stochastic,
    matrix,
    messages,
    spectral_gap,
)
from dml.wire.plans.trees import Tree, tree

SIZES = range(1, 34)
POWERS = (2, 4, 8, 16, 32, 64)
SHAPES = {"random_groups": ":3", "independent_groups": ":3", "grid": ":6x6"}
NAMES = [name + SHAPES.get(name, "") for name in TOPOLOGIES]


def made(name, sizes):
    """Return the topology for each number of ranks; a hypercube has a power of 2."""
    powers = [size for size in sizes if not size & (size - 1)]
    sizes = powers if name == "hypercube" else sizes
    return [topology(name, size, seed=7) for size in sizes]


def rounds(topologies):
    """Yield each topology with the numbers of some of its rounds."""
    for topo in topologies:
        for t in range(min(topo.period or 3, 4)):
            yield topo, t


@pytest.mark.parametrize("name", NAMES)
def test_values_average_and_keep_their_mean_in_every_round(name):
    for topo, t in rounds(made(name, SIZES)):
        weights = matrix(topo, t)
        assert is_doubly_stochastic(weights)
        if topo.spectrum:
            found = np.sort(np.abs(np.linalg.eigvals(weights)))
            stated = np.sort(np.abs(topo.spectrum(t)))
            assert np.allclose(found, stated, atol=1e-7)
            assert abs(topo.spectrum(t)[0] - 1) < 1e-12
            assert gap(topo.spectrum(t)) == pytest.approx(
                spectral_gap(weights), abs=1e-7
            )


@pytest.mark.parametrize("name", NAMES)
def test_a_rank_receives_in_a_link_from_the_rank_that_sends_to_it(name):
    for topo, t in rounds(made(name, (1, 2, 3, 8, 16, 31))):
        ranks = np.arange(topo.size)
        for link in topo.links(t):
            source, dest = link.source(ranks), link.dest(ranks)
            receives, sends = source != NO_RANK, dest != NO_RANK
            assert (dest[source[receives]] == ranks[receives]).all()
            assert (source[dest[sends]] == ranks[sends]).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_messages_of_each_rank_are_those_of_all_ranks(name):
    (topo,) = made(name, [16])
    for t in (0, 1, 5):
        sent, received = set(), set()
        for rank in range(16):
            near = edges(topo, t, rank)
            out = zip(near.send_links, near.dests, near.send_weights, strict=True)
            sent |= {(link, rank, dest, weight) for link, dest, weight in out}
            into = zip(
                near.receive_links, near.sources, near.receive_weights, strict=True
            )
            received |= {(link, source, rank, weight) for link, source, weight in into}
        every = {
            (link, int(s), int(d), float(w))
            for link, one in enumerate(messages(topo, t))
            for s, d, w in zip(*one, strict=True)
        }
        assert sent == received == every
        assert all(source != dest for _, source, dest, _ in every)


def test_a_matrix_is_stochastic_only_if_its_sums_are_1_and_no_weight_is_negative():
    by_rows = np.array([[0.5, 0.5], [0.2, 0.8]])
    assert is_row_stochastic(by_rows) and not is_column_stochastic(by_rows)
    assert is_column_stochastic(by_rows.T) and not is_doubly_stochastic(by_rows)
    assert not is_row_stochastic(np.array([[1.5, -0.5], [0, 1]]))
    assert not is_row_stochastic(0.9 * by_rows)


def test_a_ring_has_weights_of_a_third_and_the_gap_of_its_formula():
    for size in SIZES[1:]:
        weights = matrix(topology("ring", size))
        second = 1 - 2 / 3 * (1 - np.cos(2 * np.pi / size))
        assert spectral_gap(weights) == pytest.approx(1 - abs(second), abs=1e-9)
        neighbours = (np.arange(size)[:, None] - np.arange(size)) % size
        for distance in (1, size - 1) if size > 2 else ():
            assert np.allclose(weights[neighbours == distance], 1 / 3)


@pytest.mark.parametrize("size", POWERS)
def test_exponential_graph_and_hypercube_have_the_gap_of_their_formula(size):
    formula = 2 / (size.bit_length() - 1 + 1)
    for name in ("exponential", "hypercube"):
        assert spectral_gap(matrix(topology(name, size))) == pytest.approx(formula)


def test_gaps_are_those_of_the_literature():
    gaps = [gap(topology("exponential", p).spectrum(0)) for p in (8, 16, 64)]
    assert gaps == pytest.approx([0.5, 0.4, 0.2857], abs=1e-4)
    gaps = [gap(topology("ring", p).spectrum(0)) for p in (8, 16, 64)]
    assert gaps == pytest.approx([0.195, 0.0507, 0.00321], abs=1e-3)


def test_one_peer_exponential_is_exact_after_lg_p_rounds_only_for_powers_of_2():
    for size in range(2, 70):
        topo = topology("one_peer_exponential", size)
        assert topo.period == (size - 1).bit_length()
        product = np.eye(size)
        for t in range(topo.period):
            assert set(np.unique(matrix(topo, t))) <= {0.0, 0.5, 1.0}
            product = matrix(topo, t) @ product
        exact = np.abs(product - 1 / size).max() < 1e-15
        assert exact == (size & (size - 1) == 0)


@pytest.mark.parametrize("sides", ((2, 2), (3, 3), (3, 4), (2, 3, 4), (5, 1, 2), (7,)))
def test_a_full_grid_is_exact_after_one_round_per_axis_and_not_before(sides):
    size = int(np.prod(sides))
    topo = topology("grid:" + "x".join(map(str, sides)), size)
    product = np.eye(size)
    for t, side in enumerate(sides):
        assert side == 1 or np.abs(product - 1 / size).max() > 1e-3
        assert set(topo.groups(t).sizes()) == {side}
        product = matrix(topo, t) @ product
    assert np.abs(product - 1 / size).max() < 1e-15


@pytest.mark.parametrize(
    "name", ("grid:4x5", "random_groups:4", "independent_groups:5")
)
@pytest.mark.parametrize("size", (1, 7, 13, 20))
def test_groups_are_disjoint_and_contain_every_rank(name, size):
    topo = topology(name, size, seed=3)
    for t in range(4):
        groups = topo.groups(t)
        assert sorted(groups.order) == list(range(size))
        for rank in range(size):
            members = groups.members(rank)
            assert rank in members
            assert (groups.label[members] == groups.label[rank]).all()
        if name == "random_groups:4":
            count = max(1, size // 4)
            assert max(groups.sizes()) - min(groups.sizes()) <= 1
            assert len(groups.sizes()) == count


def test_random_groups_change_with_the_round_and_the_seed_only():
    labels = {
        (seed, t): tuple(topology("random_groups:4", 40, seed).groups(t).label)
        for seed in (1, 2)
        for t in (0, 1)
    }
    assert len(set(labels.values())) == 4
    again = topology("random_groups:4", 40, 1).groups(0)
    assert tuple(again.label) == labels[1, 0]


@pytest.mark.parametrize("arity", (1, 2, 3, 5))
def test_a_tree_joins_all_ranks_and_its_diameter_is_the_longest_path(arity):
    for size in range(1, 42):
        check_tree(Tree(size, arity))


def check_tree(graph):
    size = graph.size
    near = [graph.neighbours(rank) for rank in range(size)]
    assert all(rank in near[other] for rank in range(size) for other in near[rank])
    assert sum(map(len, near)) == 2 * (size - 1)
    assert [len(one) for one in near] == graph.degree(np.arange(size)).tolist()

    def distances(start):
        found, front = {start: 0}, [start]
        for rank in front:
            for other in near[rank]:
                if other not in found:
                    found[other] = found[rank] + 1
                    front.append(other)
        assert len(found) == size
        return found

    longest = max(max(distances(rank).values()) for rank in range(size))
    assert graph.diameter() == longest


def test_trees_by_name_have_the_diameters_of_the_literature():
    found = [tree(name, 16).diameter() for name in ("chain", "tree", "star")]
    assert found == [15, 7, 2]


def test_a_million_ranks_need_no_matrix():
    size = 1 << 20
    for name in ("ring", "torus", "exponential", "one_peer_exponential", "chain"):
        link = topology(name, size).links(0)[0]
        assert 0 <= link.source(np.array([5]))[0] < size
    assert gap(topology("ring", size).spectrum(0)) == pytest.approx(
        2 / 3 * (2 * np.pi / size) ** 2 / 2, rel=1e-3
    )
    assert rounds_to(topology("ring", size), 1e-9) > 10**11
    assert topology("star", size).size == size  # its links are made when used
    with pytest.raises(BadInput, match="at most 4096"):
        matrix(topology("ring", size))


@pytest.mark.parametrize(
    "text, size",
    [
        ("rings", 4),
        ("ring:", 4),
        ("ring:3", 4),
        ("grid", 4),
        ("grid:2", 4),
        ("grid:2xa", 4),
        ("torus:3x2", 5),
        ("random_groups", 4),
        ("random_groups:0", 4),
        ("hypercube", 6),
        ("ring", 0),
    ],
)
def test_bad_topologies_are_refused_with_advice(text, size):
    with pytest.raises(BadInput, match="expected .* got .*; "):
        topology(text, size)
