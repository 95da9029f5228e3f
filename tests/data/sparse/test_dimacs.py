from itertools import product

import numpy as np
import pytest

from dml.data.sparse.dimacs import dimacs, write
from dml.data.sparse.graphs import generated
from dml.types import BadInput

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


def test_every_cut_costs_what_its_arcs_carry(tmp_path):
    arcs = ARCS + EXTRA
    (tmp_path / "graph.max").write_text(text(arcs))
    graph = dimacs(tmp_path / "graph.max")
    assert graph.nodes == 3 and graph.labels == 2
    for labels in product((0, 1), repeat=3):
        sides = dict(zip((1, 3, 5), labels, strict=True)) | {2: 0, 4: 1}
        want = sum(w for u, v, w in arcs if sides[u] == 0 and sides[v] == 1)
        assert cut(graph, labels) == pytest.approx(want)


def test_what_is_written_is_read(tmp_path):
    graph = generated((4, 5), 2, seed=3)
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
        (["p max 3 1", "p max 3 1"], "line 2: expected one line `p`"),
        (["p min 3 1"], "line 1: expected `p max` with 2 nodes or more"),
        (["p max x 1"], "line 1: expected `p max` with 2 nodes or more"),
        (["p max 3"], "line 1: expected `p max nodes arcs`"),
        ([*HEAD, "b 1 2 3"], "line 6: expected a line of p, n, a or c"),
        ([*HEAD, "a 1 2"], "line 6: expected `a from to capacity`, got 'a 1 2'"),
        ([*HEAD, "a 1 6 1"], "line 6: expected nodes from 1 to 5, got 'a 1 6 1'"),
        ([*HEAD, "a 0 1 1"], "line 6: expected nodes from 1 to 5"),
        ([*HEAD, "a 1 y 1"], "line 6: expected nodes from 1 to 5"),
        ([*HEAD, "a 1 3 -1"], "line 6: expected a capacity of 0 or more"),
        ([*HEAD, "a 1 3 nan"], "line 6: expected a capacity of 0 or more"),
        ([*HEAD, "a 1 3 1e999"], "line 6: expected a capacity of 0 or more"),
        ([*HEAD, "n 3 s"], "line 6: expected one `s` and one `t`"),
        (HEAD[:3], "`n node s` and `n node t` of two nodes, got {'s': 2}"),
        ([*HEAD[:3], "n 2 t"], "of two nodes, got"),
        ([], "got none; name the terminals"),
        (HEAD, "edges between nodes, got none"),
        ([*HEAD, "a 1 3 1", "a 3 1 1"], "got 0 terminals"),
        (["\xff"], "DIMACS file at"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path, lines, message):
    (tmp_path / "bad.max").write_text("\n".join(lines), "latin-1")
    with pytest.raises(BadInput) as error:
        dimacs(tmp_path / "bad.max")
    assert message in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(BadInput, match="DIMACS file at .*none, got"):
        dimacs(tmp_path / "none")
