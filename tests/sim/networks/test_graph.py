"""Graphs from files: what is read, and what is refused with its line."""

import re

import numpy as np
import pytest

from dml.sim.networks.fabric import Prices, Rates
from dml.sim.networks.graph import read
from dml.types import BadInput

SQUARE = """
# a square with a diagonal
10 20
20 30   # routers' numbers need not be close
30 40
10 40

10 30 4
"""


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "graph.txt"
        path.write_text(text)
        return path

    return write


def test_cables_are_links_both_ways_with_their_bandwidth(written):
    graph = read(written(SQUARE), Rates(link=8e-9, hop=3e-7), concentration=3)
    beta = dict(zip(map(tuple, graph.ends().tolist()), graph.links().beta, strict=True))
    assert set(beta.values()) == {8e-9, 2e-9} and len(beta) == 10
    assert beta[0, 2] == beta[2, 0] == 2e-9
    assert (graph.links().alpha == 3e-7).all()
    cost = 100 * (10 + 12) + 10 * 12 + 5
    assert graph.report(Prices(100, 10, 1)) == (4, 5, 2, 3, cost)
    assert str(graph) == "Graph(routers=4, cables=5, concentration=3)"


def test_ranks_go_in_order_to_all_routers_or_to_those_listed(written):
    graph = read(written(SQUARE), concentration=3)
    assert graph.at(np.arange(graph.capacity)).tolist() == [
        *(0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3)
    ]
    graph = read(written(SQUARE + "ranks 40\nranks 20 40\n"), concentration=2)
    assert graph.at(np.arange(graph.capacity)).tolist() == [1, 1, 3, 3]
    assert len(graph.paths(np.array([0]), np.array([3])).links) == 2


def test_a_line_is_the_same_in_either_direction(written):
    one, two = (read(written(line)) for line in ("3 7 2", "7 3 2.0"))
    assert (one.ends() == two.ends()).all() and one.factors == two.factors


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("", 1, "got none"),
        ("0 1\n1\n", 2, "got 1"),
        ("0 1\n1 two\n", 2, "got 1 two"),
        ("0 1\n\n1 -2\n", 3, "got 1 -2"),
        ("0 1 2 3\n", 1, "got 0 1 2 3"),
        ("0 1 fast\n", 1, "got 0 1 fast"),
        ("0 1 0\n", 1, "got 0 1 0"),
        ("0 1 nan\n", 1, "got 0 1 nan"),
        ("0 1 inf\n", 1, "got 0 1 inf"),
        ("0 1\n2 2\n", 2, "got 2 2"),
        ("0 1\n1 2\n1 0 3\n", 3, "got 1 0 3 again"),
        ("0 1\nranks\n", 2, "got none"),
        ("0 1\nranks 0 x\n", 2, "got 0 x"),
        ("0 1\nranks 0 5\n", 2, "got router 5"),
        ("0 1\n2 3\n", 2, "got router 2 without a route to router 0"),
        ("0 1\n2 3\nranks 0\nranks 3\n", 4, "router 3 without a route to router 0"),
        ("0 99999999999999999999\n", 1, "got 0 99999999999999999999"),
    ],
)
def test_a_bad_file_is_refused_in_one_line_with_its_number(written, text, line, what):
    with pytest.raises(BadInput) as error:
        read(written(text))
    message = str(error.value)
    assert f"line {line}: expected " in message and what in message
    assert "\n" not in message and re.search("; write a line such as 0 1", message)


def test_routers_without_ranks_may_lie_apart(written):
    for ranks in ("0 1", "2 3"):
        assert read(written(f"0 1\n2 3\nranks {ranks}\n")).capacity == 2


def test_no_file_and_no_text_are_refused(tmp_path):
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "missing", tmp_path, tmp_path / "bytes"):
        with pytest.raises(BadInput, match="expected a file of cables, got .*; pass"):
            read(path)
