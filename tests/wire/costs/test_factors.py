"""Words of exchanges by factors, servers and all-reduces, and the choice."""

import itertools

import numpy as np
import pytest

from dml import sim
from dml.types import BadInput
from dml.wire.collectives.byteps import byteps_allreduce
from dml.wire.collectives.ring import ring_allreduce
from dml.wire.collectives.sharded_server import server_allreduce
from dml.wire.comm import Metered
from dml.wire.costs.factors import (
    WORDS,
    Nodes,
    ProductSizes,
    choose,
    last_factor_nodes,
)
from dml.wire.reducers.sufficient_factors import Columns, gather_factors

PAPER = ProductSizes(32, 4096, 4096)


@pytest.mark.parametrize(
    "scheme, nodes, millions",
    [
        ("factors", Nodes(8, 8), 3.67),
        ("server", Nodes(8, 8, both=False), 33.55),
        ("server", Nodes(8, 8), 58.72),
        ("allreduce", Nodes(8, 8), 58.72),
        ("server", Nodes(8, 2, both=False), 134.22),  # of a server
    ],
)
def test_words_of_the_example_of_the_paper(scheme, nodes, millions):
    assert WORDS[scheme](PAPER, nodes) / 1e6 == pytest.approx(millions, abs=0.005)


class Counted(Metered):
    """Counts the words that each rank sends and receives."""

    def __init__(self, comm, table):
        super().__init__(comm)
        self.table = table

    def count(self, operation, buffer, dest):
        self.table[self.rank] += buffer.size
        self.table[dest] += buffer.size


def counted(exchange, size):
    table = np.zeros(size, np.int64)
    sim.run(lambda comm: exchange(Counted(comm, table)), size)
    return table


# with an equal part of M x N for every node, so that all nodes have equal words
@pytest.mark.parametrize(
    "p, sizes", [(2, ProductSizes(3, 8, 6)), (4, ProductSizes(2, 12, 8))]
)
def test_words_are_those_that_a_node_sends_and_receives(p, sizes):
    k, m, n = sizes
    columns, rows = {"w": Columns(m, n)}, {"w": [k] * p}
    pair = np.ones((k, m), np.float32), np.ones((k, n), np.float32)

    def factors(comm):
        gather_factors(comm, {"w": pair}, columns, rows)

    def summed(allreduce, **options):
        return lambda comm: allreduce(comm, np.zeros(m * n, np.float32), **options)

    both, apart = Nodes(p, p), Nodes(p, p, both=False)
    assert set(counted(factors, p)) == {WORDS["factors"](sizes, both)}
    assert set(counted(summed(ring_allreduce), p)) == {WORDS["allreduce"](sizes, both)}
    assert set(counted(summed(server_allreduce), p)) == {WORDS["server"](sizes, both)}
    servers = counted(summed(byteps_allreduce, spare=p), 2 * p)
    assert set(servers) == {WORDS["server"](sizes, apart)}


def test_the_choice_has_the_fewest_words_and_follows_the_rule_of_the_paper():
    grid = itertools.product((1, 3, 32), (1, 7, 90), (2, 40, 500), (1, 2, 5, 16))
    seen = set()
    for k, m, n, p in grid:
        sizes = ProductSizes(k, m, n)
        for servers, both in ((p, True), (max(1, p // 2), True), (2 * p, False)):
            nodes = Nodes(p, servers, both)
            words = {name: count(sizes, nodes) for name, count in WORDS.items()}
            chosen = choose(sizes, nodes)
            seen.add(chosen)
            assert words[chosen] == min(words.values())
            if both:
                rule = (
                    2 * k * (p - 1) * (m + n) <= 2 * m * n * (p + servers - 2) / servers
                )
                pair = choose(sizes, nodes, ("factors", "server"))
                assert (pair == "factors") == rule
        crossing = last_factor_nodes(sizes)
        cheap = [q for q in range(2, 200) if choose(sizes, Nodes(q, q)) == "factors"]
        assert min(crossing, 199) == max(cheap, default=1)
    assert seen == set(WORDS)
    with pytest.raises(BadInput, match="expected sizes and nodes of 1 or more"):
        choose(ProductSizes(0, 4, 4), Nodes(2, 2))
