"""Routers that add: results and bits, messages, words and seconds."""

import numpy as np
import pytest

from dml import sim
from dml.conformance.known_results import DTYPES, OPS, Case, inputs
from dml.sim.networks.adding import adding
from dml.sim.networks.named import network
from dml.wire.collectives.trees.in_network import (
    in_network,
    in_network_allreduce,
    in_network_seconds,
)
from dml.wire.costs.allreduce import Job, Rates
from dml.wire.plans.schedules import words_sent

SEGMENT = 256  # bytes
NETWORKS = [
    *(("uniform", 1), ("uniform", 2), ("uniform", 7), ("hosts:3x4", 10)),
    *(("torus:3x4", 11), ("fat_tree:4", 16), ("dragonfly:2", 23), ("slim_fly:5", 9)),
]


def below(tree, node, rows):
    """Return the sum of a router: its routers, then its ranks, in their order."""
    if node < tree.ranks:
        return rows[node]
    children = [n for n, parent in enumerate(tree.parents) if parent == node != n]
    children.sort(key=lambda child: (child < tree.ranks, child))
    total = below(tree, children[0], rows)
    for child in children[1:]:
        total = total + below(tree, child, rows)
    return total


def run(net, cases):
    """Run all-reduces; return the buffers of the ranks, and the clocks of all nodes."""

    def program(comm):
        found = []
        for case, op in cases:
            buffer = inputs(case)[min(comm.rank, case.size - 1)].copy()
            in_network_allreduce(net.tree, comm, buffer, op, SEGMENT)
            found.append(buffer)
        return found, comm.Wtime()

    return sim.run(program, net.capacity, net)


@pytest.mark.parametrize(("text", "size"), NETWORKS)
def test_all_operations_and_dtypes_are_reduced(text, size):
    cases = [
        (Case(size, length, dtype, name), op)
        for dtype in DTYPES
        for name, op in OPS.items()
        for length in ((0, 1, 200) if dtype == "float32" else (200,))
        if not (dtype.startswith("complex") and name in ("max", "min"))
    ]
    net = adding(network(text, size), size)
    for results, _ in run(net, cases)[:size]:
        for (case, op), got in zip(cases, results, strict=True):
            want = op.reduce(inputs(case), axis=0, dtype=got.dtype)
            kind = {"rtol": 2e-2 if case.dtype == "float16" else 1e-5}
            if got.dtype.kind in "fc":
                np.testing.assert_allclose(got, want, **kind)
            else:
                np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(("text", "size"), NETWORKS)
def test_bits_messages_words_and_seconds_are_those_of_the_tree(text, size):
    net = adding(network(text, size), size)
    for length in (0, 5, 640, 1003):
        case = Case(size, length, "float32", "sum")
        rows = inputs(case)
        results = run(net, [(case, np.add)])
        want = below(net.tree, root(net.tree), rows)
        for (got,), _ in results[:size]:
            assert got.tobytes() == want.tobytes()
        rounds = list(in_network(net.tree, length, segment=SEGMENT))
        clocks = sim.evaluate(rounds, net, net.capacity).clocks
        ends = [end for _, end in results]
        np.testing.assert_allclose(ends, clocks, rtol=1e-12, atol=0)
        between = 2 * (net.tree.routers - 1) + 1  # routers, and the nodes of the root
        assert words_sent(rounds) == (2 * size + between) * length
        job, rates = Job(size, length, segment=SEGMENT), Rates(1e-6, 1e-9, 1e-10)
        least = in_network_seconds(net.tree, job, rates)
        took = clocks[:size].max()
        if net.tree.routers == 1:
            assert took == pytest.approx(least, rel=1e-2)
        hops = 2 * net.tree.depths.max() * 1e-7
        assert took <= least + hops


def root(tree):
    return next(n for n, above in enumerate(tree.parents) if n == above)


def test_routers_that_add_take_half_the_time_of_a_ring():
    """A rank sends and receives every element once, at the same time."""
    net = adding(network("fat_tree:4", 16), 16)
    length = 1 << 20
    rounds = in_network(net.tree, length)
    took = sim.evaluate(rounds, net, net.capacity).clocks.max()
    assert 4 * length * 1e-9 < took < 1.15 * 4 * length * 1e-9
