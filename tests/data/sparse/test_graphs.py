"""Graphs to be cut: what their edges cost, and what is not a graph."""

import gzip
from itertools import product

import numpy as np
import pytest
from scipy.stats import norm

from dml.data.sparse import brain_volume, entities, graphs
from dml.data.sparse.graphs import (
    Graph,
    checked,
    contrast,
    generated,
    grid,
    label_costs,
    photograph,
    terminals,
)
from dml.types import BadInput


@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 4), (1, 5)])
def test_a_grid_joins_the_points_at_distance_1_each_once(shape):
    places = np.argwhere(np.ones(shape))
    apart = abs(places[:, None] - places).sum(axis=-1)
    want = {(u, v) for u, v in np.argwhere(apart == 1) if u < v}
    pairs = [tuple(pair) for pair in grid(shape)]
    assert len(pairs) == len(set(pairs)) and set(pairs) == want


def test_a_cut_of_terminals_alone_costs_what_the_labels_do_but_for_a_constant():
    costs_NxK = np.random.default_rng(0).random((5, 3))
    ends, weights = terminals(costs_NxK)
    assert (weights > 0).all() and len(ends) == 10  # the dearest needs none of its own
    offset = None
    for labels in product(range(3), repeat=5):
        cut = weights[np.take(labels, ends[:, 0]) != ends[:, 1]].sum()
        wanted = costs_NxK[range(5), labels].sum()
        offset = cut - wanted if offset is None else offset
        assert cut - wanted == pytest.approx(offset, abs=1e-5)


def test_pairs_are_cheap_to_cut_where_the_picture_has_an_edge():
    picture = np.float32([0, 0, 0.1, 1, 1])[:, None]
    pairs = grid((5,))
    weights = contrast(pairs, picture, 2.0)
    assert weights.argmin() == 2
    assert weights[0] == weights[3] == 2 > weights[1] > weights[2] > 0
    even = contrast(pairs, np.zeros((5, 1), np.float32), 2.0)
    np.testing.assert_array_equal(even, 2)


def test_costs_are_those_of_normal_laws():
    rng = np.random.default_rng(1)
    truth = np.repeat([0, 2], 500)
    picture = rng.normal([[0.0, 0.0]], [[1.0, 2.0]], (1000, 2))
    picture[truth == 2] = 3 * picture[truth == 2] + 1
    costs_NxK = label_costs(picture, truth, 3)
    assert costs_NxK.min(axis=1).max() == 0 and costs_NxK.max() == graphs.CLIP
    assert (costs_NxK[:, 1] == graphs.CLIP).all()  # nobody has it
    first, third = (
        -norm.logpdf(picture, own.mean(axis=0), own.std(axis=0)).sum(axis=1)
        for own in (picture[truth == 0], picture[truth == 2])
    )
    between = np.clip(third - first, -graphs.CLIP, graphs.CLIP)
    np.testing.assert_allclose(costs_NxK[:, 2] - costs_NxK[:, 0], between, atol=1e-9)


def test_a_generated_graph_is_of_its_seed_and_has_patches():
    first, same, other = (generated((8, 9), 3, seed) for seed in (1, 1, 2))
    assert all(map(np.array_equal, first[2:7], same[2:7]))
    assert not np.array_equal(first.picture, other.picture)
    assert set(first.truth) == {0, 1, 2} and first.shape == (8, 9)
    inside = first.truth[first.pairs[:, 0]] == first.truth[first.pairs[:, 1]]
    assert inside.mean() > 0.7


def test_a_photograph_has_its_figure_in_the_middle():
    graph = photograph("flower", every=10)
    truth = graph.truth.reshape(graph.shape)
    middle = truth[15:25, 25:35]
    assert graph.shape == (43, 64) and graph.picture.shape == (43 * 64, 3)
    assert middle.mean() > 0.7 > 0.3 > truth.mean()
    assert 0 <= graph.picture.min() < graph.picture.max() <= 1


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: photograph("rose"), "one of china, flower .* got 'rose'"),
        (lambda: photograph("china", every=0), "every=0"),
        (lambda: generated((1, 2), 3, 0), "a point for each, got labels=3"),
        (lambda: generated((), 2, 0), "got labels=2"),
    ],
)
def test_pictures_that_cannot_be_made_are_one_line(make, message):
    with pytest.raises(BadInput, match=message) as error:
        make()
    assert "\n" not in str(error.value)


ONE = Graph(
    *(3, 2, np.int32([[0, 1], [1, 2]]), np.ones(2, np.float32)),
    *(np.int32([[0, 0], [2, 1]]), np.ones(2, np.float32)),
)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"pairs": np.empty((0, 2), np.int32)}, "edges between nodes, got none"),
        ({"terminals": np.empty((0, 2), np.int32)}, "got 0 terminals of 2 labels"),
        ({"labels": 1}, "got 2 terminals of 1 labels"),
        ({"pairs": np.int32([[0, 3]])}, "between nodes from 0 to 2, got 0 to 3"),
        ({"pairs": np.int32([[-1, 1]])}, "got -1 to 1"),
        ({"terminals": np.int32([[3, 0]])}, "nodes of terminals from 0 to 2"),
        ({"terminals": np.int32([[0, 2]])}, "labels of terminals from 0 to 1"),
        ({"pairs": np.int32([[1, 0]])}, "u < v, got 1, 0"),
        ({"pair_weights": np.float32([1, -2])}, "0 or more, got -2"),
        ({"terminal_weights": np.float32([1, np.nan])}, "0 or more, got nan"),
        ({"pair_weights": np.float32([1, np.inf])}, "0 or more, got inf"),
    ],
)
def test_what_is_not_a_graph_is_one_line(change, message):
    assert checked(ONE) is ONE
    with pytest.raises(BadInput, match=message) as error:
        checked(ONE._replace(**change))
    assert "\n" not in str(error.value)


def packed(points, kind=2):
    head = bytearray(352)
    head[42:48] = np.array(points.shape, "<i2").tobytes()
    head[70:72] = np.int16(kind).tobytes()
    head[108:112] = np.float32(352).tobytes()
    return gzip.compress(bytes(head) + points.astype(np.uint8).tobytes(order="F"))


def test_a_nifti_file_is_unpacked_along_its_axes():
    points = np.arange(24).reshape(2, 3, 4)
    np.testing.assert_array_equal(brain_volume.nifti(packed(points)), points)
    with pytest.raises(ValueError, match="data type 4"):
        brain_volume.nifti(packed(points, kind=4))


@pytest.fixture
def brain(monkeypatch, tmp_path):
    """Keep a small volume: white within grey within nothing."""
    x, y, z = np.indices((16, 14, 12))
    away = np.sqrt((x - 8) ** 2 + (y - 7) ** 2)
    white, grey = away < 3, (away >= 3) & (away < 6)
    parts = 200 * white + 120 * grey, 255 * grey, 255 * white
    path = tmp_path / "brain.txt"
    path.write_text(
        "".join("".join(brain_volume.lines(Opened(packed(p)))) for p in parts)
    )
    monkeypatch.setattr(brain_volume, "cached", lambda *_: path)
    return path


class Opened:
    def __init__(self, content):
        self.read = lambda: content


def test_a_volume_has_slices_about_its_middle_and_the_maps_as_truth(brain):
    graph = brain_volume.volume(slices=3, every=2)
    assert graph.shape == (3, 8, 7) and graph.labels == 3 == len(graph.names)
    truth = graph.truth.reshape(graph.shape)
    for place, label in (((0, 0), 0), ((2, 2), 1), ((4, 3), 2)):
        np.testing.assert_array_equal(truth[:, *place], label)
    # of the nearest point, the likeliest class is mostly the true one
    cheapest = np.full((graph.nodes, 3), 0.0)
    np.add.at(cheapest, tuple(graph.terminals.T), graph.terminal_weights)
    assert (cheapest.argmax(axis=1) == graph.truth).mean() > 0.9
    again = brain_volume.volume(slices=3, every=2, seed=1)
    assert not np.array_equal(again.picture, graph.picture)


@pytest.mark.parametrize("sizes", [(0, 1), (1, 0), (13, 1), (3, 5), (1, 7)])
def test_slices_that_a_volume_lacks_are_one_line(brain, sizes):
    with pytest.raises(BadInput, match="<= 12, got slices=.* pass smaller"):
        brain_volume.volume(*sizes)


def test_a_broken_volume_says_to_remove_the_file(brain):
    brain.write_text("AAAA\n")
    with pytest.raises(BadInput, match="got .*; delete the file"):
        brain_volume.volume()


RECORDS = [
    *("rec-0-org\tanna smith 12 high street", "rec-0-dup-0\tana smith 12 high stret"),
    *("rec-1-org\tpeter jones 4 low road", "rec-1-dup-0\tpetr jones 4 low roda"),
    *("rec-1-dup-1\tpeter jonse 4 low road", "rec-2-org\talone 9 no way"),
]


@pytest.fixture
def people(monkeypatch, tmp_path):
    path = tmp_path / "people.tsv"
    path.write_text("\n".join(RECORDS))
    monkeypatch.setattr(entities, "cached", lambda *_: path)
    return path


def test_records_are_joined_to_those_alike_and_originals_are_known(people):
    graph = entities.entities(people=2, neighbours=1)
    assert graph.nodes == 5 and graph.labels == 2  # who has no copy is left out
    parted = graph.truth[graph.pairs[:, 0]] != graph.truth[graph.pairs[:, 1]]
    assert len(graph.pairs) and not parted.any()
    known = graph.terminals[:, 0]
    np.testing.assert_array_equal(known, [0, 2])
    np.testing.assert_array_equal(graph.terminals[:, 1], graph.truth[known])
    beside = np.bincount(graph.pairs.ravel(), np.repeat(graph.pair_weights, 2))
    assert (graph.terminal_weights > beside[known]).all()


def test_records_of_nobody_are_bad_input(people):
    with pytest.raises(BadInput, match="2 to 2 people .* got people=3"):
        entities.entities(people=3)
    people.write_text("\n".join([RECORDS[0], "rec-x"]))
    with pytest.raises(BadInput, match="line 2: .* got 'rec-x'"):
        entities.entities(people=2)
