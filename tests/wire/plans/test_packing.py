"""Trees packed for a network: right sums, and times close to the bound."""

from functools import partial

import numpy as np
import pytest

from dml import sim
from dml.conformance import Case, check_results
from dml.sim.networks.cuts import allreduce_bound
from dml.sim.networks.named import network
from dml.sim.networks.routes import all_routes
from dml.types import BadInput
from dml.wire.collectives.trees.packed import packed, packed_allreduce
from dml.wire.costs.allreduce import Job
from dml.wire.plans.packing import downwards, pack, packed_broadcast, rooted
from dml.wire.plans.schedules import SCHEDULES, words_sent
from tests.wire import test_algorithms as books

FREE = "@0,1e-9,0"  # no latency, no time of additions
LENGTH = 64_000  # a multiple of all numbers of pieces


def took(rounds, net, size):
    return float(sim.evaluate(rounds, net, size).clocks.max())


@pytest.mark.parametrize(
    "text, size, share",
    [
        ("0,1e-9,0", 5, 1),
        ("0,1e-9,0", 8, 1),
        (f"ring:8{FREE}", 8, 1),
        (f"torus:4x4{FREE}", 16, 1),
        (f"fat_tree:4{FREE}", 16, 1),
        (f"hosts:2x4{FREE}", 8, 0.9),
    ],
)
def test_the_time_is_close_to_the_bound_of_the_network(text, size, share):
    net = network(text, size)
    broadcast = packed_broadcast(all_routes(net, size))
    rounds = list(packed(broadcast, size, LENGTH, segment=1 << 30))
    least = allreduce_bound(net, size).byte * 4 * LENGTH
    found = took(rounds, net, size)
    assert words_sent(rounds) == 2 * (size - 1) * LENGTH
    assert least * (1 - 1e-5) <= found <= least / share * (1 + 1e-5)


@pytest.mark.parametrize("seed", (0, 1, 3))
def test_a_graph_of_unequal_cables_is_faster_than_a_ring(seed, tmp_path):
    """Of 6 ranks; no schedule is faster than the bound of all partitions."""
    rng, path = np.random.default_rng(seed), tmp_path / "graph.txt"
    order = rng.permutation(6)
    pairs = {tuple(sorted(map(int, order[k : k + 2]))) for k in range(5)}
    pairs |= {tuple(sorted(rng.choice(6, 2, False).tolist())) for _ in range(3)}
    lines = [f"{a} {b} {rng.uniform(0.1, 1):.3f}\n" for a, b in sorted(pairs)]
    path.write_text("".join(lines))
    net = network(f"graph:{path}{FREE}", 6)
    broadcast = packed_broadcast(all_routes(net, 6))
    found = took(packed(broadcast, 6, LENGTH, segment=1 << 30), net, 6)
    ring = took(SCHEDULES["ring"](6, LENGTH, segment=1 << 30), net, 6)
    least = allreduce_bound(net, 6).byte * 4 * LENGTH
    assert least <= found < 0.6 * ring
    assert found < 5 * least


def test_sums_are_right_and_messages_are_those_of_the_schedule():
    for text, size in (("torus:3x3", 9), ("hosts:2x3", 6), ("1e-6,1e-9,0", 1)):
        net = network(text, size)
        broadcast = packed_broadcast(all_routes(net, size))
        allreduce = partial(packed_allreduce, broadcast)
        exact = [Case(size, n, "int64", "sum") for n in (0, 1, 5, 997)]
        check_results(allreduce, sim.run, exact)
        _, _, sent = books.running(allreduce, Job(size, 997, registered=False), net)
        assert books.messages(list(packed(broadcast, size, 997)), size) == sent


def test_every_tree_spans_the_ranks_and_its_root_is_the_cheapest():
    routes = all_routes(network("torus:3x3", 9), 9)
    for parents in pack(routes, 9, 1.0):
        assert {child for _, child in downwards(parents)} | {
            rank for rank, up in enumerate(parents) if rank == up
        } == set(range(9))
    path = [[1], [0, 2], [1]]
    cost = np.ones((3, 3))
    cost[0, 1] = 9.0  # down from 0
    assert rooted(path, cost)[1] in (1, 2)
    assert rooted(path, cost)[0] == 1


def test_more_ranks_than_64_are_refused():
    with pytest.raises(BadInput, match="at most 64 ranks for optimal, got 65"):
        all_routes(sim.Uniform(), 65)
