"""Graphs to be cut: from seeds, pictures, volumes, records and DIMACS files."""

import gzip
import io
import zipfile
from itertools import product

import numpy as np
import pytest

from dml.data import entities as people
from dml.data import volume as brain
from dml.data.dimacs import dimacs, write
from dml.data.graphs import Graph, checked, generated, grid, photograph, terminals
from dml.types import BadInput


def served(monkeypatch, tmp_path, module, contents):
    """Give a module's source members of these contents."""
    monkeypatch.setenv("DML_DATA", str(tmp_path / "cache"))
    (source,) = module.SOURCES
    assert source.sha256 and len(source.members) == len(contents)

    def fetch(where, folder):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for name, content in zip(source.members, contents, strict=True):
                archive.writestr(name, content)
        (folder / "got").write_bytes(packed.getvalue())
        return folder / "got"

    pretended = source._replace(fetch=fetch, sha256=None)
    monkeypatch.setattr(module, "SOURCES", (pretended,))


def packed(points):
    head = np.zeros(352, np.uint8)
    head[40:48] = np.array([3, *points.shape], "<i2").view(np.uint8)
    head[70:72] = np.array([2], "<i2").view(np.uint8)
    head[108:112] = np.array([352], "<f4").view(np.uint8)
    return gzip.compress(head.tobytes() + points.tobytes(order="F"))


def cost(graph, labels):
    u, v = graph.pairs.T
    node, label = graph.terminals.T
    parted = graph.pair_weights[labels[u] != labels[v]].sum()
    return parted + graph.terminal_weights[labels[node] != label].sum()


def test_a_grid_joins_exactly_the_points_at_distance_one():
    points = np.argwhere(np.ones((2, 3, 4)))
    apart = np.abs(points[:, None] - points).sum(axis=-1)
    expected = np.argwhere(np.triu(apart == 1))
    assert sorted(map(tuple, grid((2, 3, 4)))) == sorted(map(tuple, expected))


def test_terminals_cost_what_labels_cost_but_for_a_constant():
    costs_NxK = np.random.default_rng(0).uniform(0, 3, (5, 3))
    ends, weights = terminals(costs_NxK)
    for node in range(5):
        own = [
            weights[(ends[:, 0] == node) & (ends[:, 1] != label)].sum()
            for label in range(3)
        ]
        assert np.ptp(own - costs_NxK[node]) < 1e-6


def test_a_generated_graph_is_of_its_seed_and_its_truth_beats_the_noise():
    one, same, other = (generated((12, 12), 3, seed) for seed in (0, 0, 1))
    assert np.array_equal(one.terminal_weights, same.terminal_weights)
    assert not np.array_equal(one.truth, other.truth)
    noisy = np.clip(one.picture[:, 0].round(), 0, 2).astype(int)
    assert set(one.truth) == {0, 1, 2}
    assert cost(one, one.truth) < cost(one, noisy)


GOOD = Graph(
    *(3, 2, np.array([[0, 1], [1, 2]]), np.ones(2, "f4")),
    *(np.array([[0, 0], [2, 1]]), np.ones(2, "f4")),
)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"pairs": np.zeros((0, 2), int)}, "with edges between nodes, got none"),
        ({"terminals": np.zeros((0, 2), int)}, "expected terminals of 2 labels"),
        ({"labels": 1}, "got 2 terminals of 1 labels"),
        ({"pairs": np.array([[0, 1], [1, 3]])}, "from 0 to 2, got 0 to 3"),
        ({"terminals": np.array([[0, 0], [2, 2]])}, "from 0 to 1, got 0 to 2"),
        ({"pairs": np.array([[0, 1], [2, 1]])}, "u < v, got 2, 1"),
        ({"pair_weights": np.array([1, -2.0])}, "weights of 0 or more, got -2.0"),
        ({"terminal_weights": np.array([1, np.nan])}, "got nan"),
    ],
)
def test_a_graph_that_cannot_be_cut_is_named(change, message):
    assert checked(GOOD) is GOOD
    with pytest.raises(BadInput, match=message):
        checked(GOOD._replace(**change))


def test_a_photograph_is_a_grid_of_its_points():
    graph = photograph("flower", step=20)
    assert graph.shape == (22, 32) and graph.picture.shape == (704, 3)
    assert len(graph.pairs) == 21 * 32 + 22 * 31
    with pytest.raises(BadInput, match="expected one of china, flower"):
        photograph("cat")


def test_slices_of_a_volume_have_the_truth_of_its_maps(tmp_path, monkeypatch):
    grey, white = np.zeros((2, 5, 6, 7), np.uint8)
    grey[2:4, :, 2:] = 250
    white[4, 1:, :] = 255
    whole = np.where(white > 0, 200, grey // 2).astype(np.uint8)
    contents = [packed(each) for each in (whole, grey, white)]
    served(monkeypatch, tmp_path, brain, contents)
    graph = brain.volume(start=1, count=3, step=2, noise=0)
    assert graph.shape == (3, 3, 3) and graph.labels == 3
    seen = whole[::2, ::2, 1:6:2].transpose(2, 0, 1)
    assert np.allclose(graph.picture[:, 0] * 255, seen.ravel())
    expected = np.select([seen == 200, seen == 125], [2, 1], 0).ravel()
    assert np.array_equal(graph.truth, expected)
    assert cost(graph, expected) < cost(graph, np.roll(expected, 1))
    with pytest.raises(BadInput, match="expected slices of the 7 that there are"):
        brain.volume(start=2, count=4, step=2)


def test_records_of_one_person_are_joined_and_originals_known(tmp_path, monkeypatch):
    table = "rec_id, name, place\nrec-1-org, anna miller, rome\nrec-2-org, bo, oslo\n"
    table += "rec-1-dup-0, ana miller, rome\nrec-2-dup-0, bo, osslo\nrec-3-org, x, y\n"
    served(monkeypatch, tmp_path, people, [table.encode()])
    graph = people.entities(people=2, neighbours=1)
    assert graph.nodes == 4 and graph.labels == 2  # the third has no copy
    assert [tuple(pair) for pair in graph.pairs] == [(0, 2), (1, 3)]
    assert np.array_equal(graph.truth[[0, 1]], graph.truth[[2, 3]])
    assert np.array_equal(graph.terminals[:, 0], [0, 1])
    assert np.array_equal(graph.terminals[:, 1], graph.truth[:2])
    with pytest.raises(BadInput, match="expected 2 to 2 people"):
        people.entities(people=3)


def test_a_directed_file_costs_what_its_arcs_from_source_to_sink_carry(tmp_path):
    rng = np.random.default_rng(0)
    arcs = [(u, v, int(rng.integers(1, 9))) for u, v in product(range(1, 6), repeat=2)]
    text = "c five nodes\np max 5 25\nn 4 s\nn 2 t\n"
    text += "".join(f"a {u} {v} {w}\n" for u, v, w in arcs)
    (tmp_path / "flow").write_text(text)
    graph = dimacs(tmp_path / "flow")
    for labels in product((0, 1), repeat=3):
        side = dict(zip((1, 3, 5), labels, strict=True)) | {4: 0, 2: 1}
        carried = sum(w for u, v, w in arcs if side[u] < side[v])
        assert cost(graph, np.array(labels)) + graph.constant == pytest.approx(carried)


def test_what_is_written_as_dimacs_is_read_back(tmp_path):
    graph = generated((3, 4), 2, 0)
    order = np.lexsort(graph.pairs.T[::-1])
    weights = np.arange(1, 1 + len(order), dtype="f4")
    graph = graph._replace(pairs=graph.pairs[order], pair_weights=weights)
    write(tmp_path / "graph", graph)
    for one, other in zip(dimacs(tmp_path / "graph")[:6], graph[:6], strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize(
    "lines, message",
    [
        ("a 1 2 3", "line 1: expected one line `p` before all others, got 'a 1 2 3'"),
        ("p max 4 1\na 1 5 3", "line 2: expected nodes from 1 to 4, got 'a 1 5 3'"),
        ("p max 4 1\na 1 2", "line 2: expected `a from to capacity`, got 'a 1 2'"),
        ("p max 4 1\na 1 2 -3", "line 2: expected a capacity of 0 or more"),
        ("p max 4 1\nx", "line 2: expected a line of p, n, a or c, got 'x'"),
        ("p max 4 1\nn 1 u", "line 2: expected one `s` and one `t`"),
        ("p max 4 1\na 1 b 3", "line 2: invalid literal"),
        ("p max 4 1\nn 1 s\na 1 2 3", "expected lines `n node s` and `n node t`"),
        ("p max 4 1\nn 1 s\nn 2 t\na 1 3 3", "expected a graph with edges"),
        ("p max 4 1\nn 1 s\nn 2 t\na 3 4 3\na 4 3 3", "expected terminals"),
    ],
)
def test_a_bad_line_is_named_with_what_it_says(lines, message, tmp_path):
    (tmp_path / "bad").write_text(lines)
    with pytest.raises(BadInput, match=message.replace("|", r"\|")):
        dimacs(tmp_path / "bad")
