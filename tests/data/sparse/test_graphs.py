import gzip
import io
from itertools import product

import numpy as np
import pytest
from scipy.stats import norm

from dml.data.sparse import brain_volume, entities, graphs
from dml.data.sparse.dimacs import dimacs, write
from dml.data.sparse.graphs import WeightedGraph, generate, photograph, validate
from dml.types import BadInput


@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 4), (1, 5)])
def test_a_grid_joins_the_points_at_distance_1_each_once(shape):
    places = np.argwhere(np.ones(shape))
    apart = abs(places[:, None] - places).sum(axis=-1)
    want = {(u, v) for u, v in np.argwhere(apart == 1) if u < v}
    pairs = [tuple(pair) for pair in graphs.grid_pairs(shape)]
    assert len(pairs) == len(set(pairs)) and set(pairs) == want


def test_a_cut_of_terminals_alone_costs_what_the_labels_do_but_for_a_constant():
    costs_NxK = np.random.default_rng(0).random((5, 3))
    ends, weights = graphs.terminals(costs_NxK)
    assert (weights > 0).all() and len(ends) == 10  # the dearest needs none of its own
    offset = None
    for labels in product(range(3), repeat=5):
        cut = weights[np.take(labels, ends[:, 0]) != ends[:, 1]].sum()
        wanted = costs_NxK[range(5), labels].sum()
        offset = cut - wanted if offset is None else offset
        assert cut - wanted == pytest.approx(offset, abs=1e-5)


def test_pairs_are_cheap_to_cut_where_the_picture_has_an_edge():
    picture = np.float32([0, 0, 0.1, 1, 1])[:, None]
    pairs = graphs.grid_pairs((5,))
    weights = graphs.contrast_weights(pairs, picture, 2.0)
    assert weights.argmin() == 2
    assert weights[0] == weights[3] == 2 > weights[1] > weights[2] > 0
    even = graphs.contrast_weights(pairs, np.zeros((5, 1), np.float32), 2.0)
    np.testing.assert_array_equal(even, 2)


def test_costs_are_those_of_normal_laws():
    rng = np.random.default_rng(1)
    truth = np.repeat([0, 2], 500)
    picture = rng.normal([[0.0, 0.0]], [[1.0, 2.0]], (1000, 2))
    picture[truth == 2] = 3 * picture[truth == 2] + 1
    costs_NxK = graphs.label_costs(picture, truth, 3)
    assert costs_NxK.min(axis=1).max() == 0 and costs_NxK.max() == graphs.MAX_COST
    assert (costs_NxK[:, 1] == graphs.MAX_COST).all()  # nobody has it
    first, third = (
        -norm.logpdf(picture, own.mean(axis=0), own.std(axis=0)).sum(axis=1)
        for own in (picture[truth == 0], picture[truth == 2])
    )
    between = np.clip(third - first, -graphs.MAX_COST, graphs.MAX_COST)
    np.testing.assert_allclose(costs_NxK[:, 2] - costs_NxK[:, 0], between, atol=1e-9)


def test_a_generated_graph_has_patches_and_a_photograph_its_figure():
    first, same, other = (generate((8, 9), 3, seed) for seed in (1, 1, 2))
    assert all(map(np.array_equal, first[2:7], same[2:7]))
    assert not np.array_equal(first.picture, other.picture)
    assert set(first.truth) == {0, 1, 2} and first.shape == (8, 9)
    inside = first.truth[first.pairs[:, 0]] == first.truth[first.pairs[:, 1]]
    assert inside.mean() > 0.7
    graph = photograph("flower", every=10)
    truth = graph.truth.reshape(graph.shape)
    middle = truth[15:25, 25:35]
    assert graph.shape == (43, 64) and graph.picture.shape == (43 * 64, 3)
    assert middle.mean() > 0.7 > 0.3 > truth.mean()
    assert 0 <= graph.picture.min() < graph.picture.max() <= 1


ONE = WeightedGraph(
    *(3, 2, np.int32([[0, 1], [1, 2]]), np.ones(2, np.float32)),
    *(np.int32([[0, 0], [2, 1]]), np.ones(2, np.float32)),
)


@pytest.mark.parametrize(
    "make, change, message",
    [
        (validate, {"pairs": np.empty((0, 2), "i4")}, "edges between nodes, got none"),
        (validate, {"terminals": np.empty((0, 2), "i4")}, "got 0 terminals of 2"),
        (validate, {"labels": 1}, "got 2 terminals of 1 labels"),
        (validate, {"pairs": np.int32([[0, 3]])}, "nodes from 0 to 2, got 0 to 3"),
        (validate, {"pairs": np.int32([[-1, 1]])}, "got -1 to 1"),
        (validate, {"terminals": np.int32([[3, 0]])}, "nodes of terminals from 0 to 2"),
        (validate, {"terminals": np.int32([[0, 2]])}, "of terminals from 0 to 1"),
        (validate, {"pairs": np.int32([[1, 0]])}, "u < v, got 1, 0"),
        (validate, {"pair_weights": np.float32([1, -2])}, "0 or more, got -2"),
        (validate, {"terminal_weights": np.float32([1, np.nan])}, "or more, got nan"),
        (validate, {"pair_weights": np.float32([1, np.inf])}, "0 or more, got inf"),
        (photograph, {"name": "rose"}, "one of china, flower .* got 'rose'"),
        (photograph, {"name": "china", "every": 0}, "every=0"),
        (generate, {"shape": (1, 2), "labels": 3, "seed": 0}, "points, got labels=3"),
        (generate, {"shape": (), "labels": 2, "seed": 0}, "got labels=2"),
    ],
)
def test_what_is_not_a_graph_is_one_line(make, change, message):
    assert validate(ONE) is ONE
    with pytest.raises(BadInput, match=message) as error:
        make(**change) if make is not validate else validate(ONE._replace(**change))
    assert "\n" not in str(error.value)


def packed(points, kind=2):
    head = bytearray(352)
    head[42:48] = np.array(points.shape, "<i2").tobytes()
    head[70:72] = np.int16(kind).tobytes()
    head[108:112] = np.float32(352).tobytes()
    return gzip.compress(bytes(head) + points.astype(np.uint8).tobytes(order="F"))


def test_a_nifti_volume_has_slices_about_its_middle_and_the_maps_as_truth(brain):
    points = np.arange(24).reshape(2, 3, 4)
    np.testing.assert_array_equal(brain_volume.nifti(packed(points)), points)
    with pytest.raises(ValueError, match="data type 4"):
        brain_volume.nifti(packed(points, kind=4))
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


@pytest.fixture
def brain(monkeypatch, tmp_path):
    """Keep a small volume: white within grey within nothing."""
    x, y, z = np.indices((16, 14, 12))
    away = np.sqrt((x - 8) ** 2 + (y - 7) ** 2)
    white, grey = away < 3, (away >= 3) & (away < 6)
    parts = 200 * white + 120 * grey, 255 * grey, 255 * white
    path = tmp_path / "brain.txt"
    lines = (brain_volume.lines(io.BytesIO(packed(part))) for part in parts)
    path.write_text("".join(map("".join, lines)))
    monkeypatch.setattr(brain_volume, "cached_path", lambda *_: path)
    return path


def test_slices_that_a_volume_lacks_and_a_broken_file_are_bad_input(brain):
    for sizes in [(0, 1), (1, 0), (13, 1), (3, 5), (1, 7)]:
        with pytest.raises(BadInput, match="<= 12, got slices=.* pass smaller"):
            brain_volume.volume(*sizes)
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
    monkeypatch.setattr(entities, "cached_path", lambda *_: path)
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
    with pytest.raises(BadInput, match="2 to 2 people .* got people=3"):
        entities.entities(people=3)
    people.write_text("\n".join([RECORDS[0], "rec-x"]))
    with pytest.raises(BadInput, match="line 2: .* got 'rec-x'"):
        entities.entities(people=2)


HEAD = ["c a comment", "p max 5 8", "n 2 s", "n 4 t", ""]
ARCS = [(2, 1, 3), (2, 3, 2.5), (1, 3, 4), (3, 1, 1), (3, 5, 2), (5, 4, 6), (1, 4, 1)]
EXTRA = [(2, 4, 0.5), (1, 2, 9), (4, 3, 9), (1, 1, 9), (1, 3, 0.25)]  # what no cut has


def text(arcs):
    return "\n".join([*HEAD, *(f"a {u} {v} {w}" for u, v, w in arcs)])


def cut(graph, labels):
    u, v = np.take(labels, graph.pairs.T)
    node, label = graph.terminals.T
    parted = graph.terminal_weights[np.take(labels, node) != label].sum()
    return graph.constant + graph.pair_weights[u != v].sum() + parted


def test_every_cut_of_a_dimacs_file_costs_what_its_arcs_carry(tmp_path):
    arcs = ARCS + EXTRA
    (tmp_path / "graph.max").write_text(text(arcs))
    graph = dimacs(tmp_path / "graph.max")
    assert graph.nodes == 3 and graph.labels == 2
    for labels in product((0, 1), repeat=3):
        sides = dict(zip((1, 3, 5), labels, strict=True)) | {2: 0, 4: 1}
        want = sum(w for u, v, w in arcs if sides[u] == 0 and sides[v] == 1)
        assert cut(graph, labels) == pytest.approx(want)


def test_a_written_graph_is_read_back(tmp_path):
    graph = generate((4, 5), 2, seed=3)
    write(tmp_path / "graph.max", graph)
    again = dimacs(tmp_path / "graph.max")
    assert again.nodes == graph.nodes and again.constant == pytest.approx(0)
    order = np.lexsort(graph.pairs.T[::-1])
    np.testing.assert_array_equal(again.pairs, graph.pairs[order])
    np.testing.assert_allclose(again.pair_weights, graph.pair_weights[order], rtol=1e-6)
    np.testing.assert_array_equal(again.terminals, graph.terminals)
    np.testing.assert_allclose(again.terminal_weights, graph.terminal_weights, 1e-6)


@pytest.mark.parametrize(
    "lines, message",
    [
        (["n 1 s"], "line 1: expected one line `p` before all others, got 'n 1 s'"),
        (2 * ["p max 3 1"], "line 2: expected one line `p`"),
        (["p min 3 1"], "line 1: expected `p max` with 2 nodes or more"),
        (["p max 3"], "line 1: expected `p max nodes arcs`"),
        ([*HEAD, "b 1 2 3"], "line 6: expected a line of p, n, a or c"),
        ([*HEAD, "a 1 2"], "line 6: expected `a from to capacity`, got 'a 1 2'"),
        ([*HEAD, "a 1 6 1"], "line 6: expected nodes from 1 to 5, got 'a 1 6 1'"),
        ([*HEAD, "a 1 y 1"], "line 6: expected nodes from 1 to 5"),
        ([*HEAD, "a 1 3 -1"], "line 6: expected a capacity of 0 or more"),
        ([*HEAD, "a 1 3 1e999"], "line 6: expected a capacity of 0 or more"),
        ([*HEAD, "n 3 s"], "line 6: expected one `s` and one `t`"),
        (HEAD[:3], "`n node s` and `n node t` of two nodes, got {'s': 2}"),
        ([*HEAD[:3], "n 2 t"], "of two nodes, got"),
        ([], "got none; add or correct"),
        (HEAD, "edges between nodes, got none"),
        ([*HEAD, "a 1 3 1", "a 3 1 1"], "got 0 terminals"),
        (["\xff"], "DIMACS file at"),
    ],
)
def test_a_bad_dimacs_file_is_one_line(tmp_path, lines, message):
    (tmp_path / "bad.max").write_text("\n".join(lines), "latin-1")
    with pytest.raises(BadInput) as error:
        dimacs(tmp_path / "bad.max")
    assert message in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(BadInput, match="DIMACS file at .*none, got"):
        dimacs(tmp_path / "none")
