"""Trees packed for a network: right sums, and times close to the bound."""

from functools import partial
from itertools import combinations

import numpy as np
import pytest

from dml import sim
from dml.conformance.comparisons import check_results
from dml.conformance.known_results import Case
from dml.sim.networks.cuts import allreduce_bound
from dml.sim.networks.named import network
from dml.sim.networks.routes import all_routes, packed_for
from dml.types import BadInput
from dml.wire.collectives.trees.packed import packed, packed_allreduce
from dml.wire.costs.allreduce import Job
from dml.wire.plans.packing import downwards, pack, rooted
from dml.wire.plans.schedules import SCHEDULES, words_sent
from dml.wire.plans.slots import matching, packed_broadcasts, whole_slots
from tests.sim.networks.unequal import FREE, unequal_cables
from tests.wire import test_algorithms as books

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
    broadcast = packed_for(net, size, LENGTH)
    rounds = list(packed(broadcast, size, LENGTH, segment=1 << 30))
    least = allreduce_bound(net, size).byte * 4 * LENGTH
    found = took(rounds, net, size)
    assert words_sent(rounds) == 2 * (size - 1) * LENGTH
    assert least * (1 - 1e-5) <= found <= least / share * (1 + 1e-5)


@pytest.mark.parametrize("seed", (0, 1, 3))
def test_a_graph_of_unequal_cables_is_faster_than_a_ring(seed, tmp_path):
    """Of 6 ranks; no schedule is faster than the bound."""
    net = network(unequal_cables(tmp_path, seed), 6)
    ring = took(SCHEDULES["ring"](6, LENGTH, segment=1 << 30), net, 6)
    for length, share in ((LENGTH, 0.8), (1000 * LENGTH, 0.85)):
        broadcast = packed_for(net, 6, length)
        found = took(packed(broadcast, 6, length, segment=1 << 30), net, 6)
        least = allreduce_bound(net, 6).byte * 4 * length
        assert least <= found < 0.5 * ring * length / LENGTH
        assert found < least / share


@pytest.mark.parametrize("seed", range(3))
def test_messages_on_unequal_cables_take_equally_long(seed, tmp_path):
    """Up to the rounding of pieces; every piece passes every edge of its tree once.

    Messages of a round have no link in common, also in reverse.
    """
    net = network(unequal_cables(tmp_path, seed), 6)
    routes = all_routes(net, 6)
    single, *others = packed_broadcasts(routes)
    assert others
    for broadcast in others:
        rounds, pieces = broadcast.plan(6, 0), broadcast.pieces(6, 0, 0)
        parents = np.full((pieces, 6), -1)
        took = []
        for source, dest, first, number, _ in rounds:
            assert len({*source}) == len({*dest}) == len(source)
            for ends in (source, dest), (dest, source):
                used = [
                    link
                    for a, b in zip(*ends, strict=True)
                    for link in routes.links[a][b]
                ]
                assert len({*used}) == len(used)
            for a, b, start, count in zip(source, dest, first, number, strict=True):
                assert (parents[start : start + count, b] == -1).all()
                parents[start : start + count, b] = a
                took.append(count * routes.seconds[a][b].max())
        assert ((parents >= 0).sum(1) == 5).all()
        assert np.median(took) > 0.9 * max(took)


def test_messages_with_a_common_link_on_the_way_back_are_not_in_one_slot(tmp_path):
    """In reverse the rounds are a reduction; routes back may have other links."""
    size = 12
    routes = all_routes(network(unequal_cables(tmp_path, 0, size, 8), size), size)
    slots = whole_slots(routes).links

    def common(links, one, other):
        return bool({*links[one[0]][one[1]]} & {*links[other[0]][other[1]]})

    edges = [(a, b) for a, b in np.ndindex(size, size) if a != b]
    only_back = 0
    for one, other in combinations(edges, 2):
        there = common(routes.links, one, other)
        back = common(routes.links, one[::-1], other[::-1])
        only_back += back and not there
        both = {edge: slots[edge[0]][edge[1]] for edge in (one, other)}
        sent = matching({one: 1.0, other: 1.0}, both)
        assert len(sent) == (1 if there or back else 2)
    assert only_back


def test_sums_are_right_and_messages_are_those_of_the_schedule():
    for text, size in (("torus:3x3", 9), ("hosts:2x3", 6), ("1e-6,1e-9,0", 1)):
        net = network(text, size)
        for broadcast in packed_broadcasts(all_routes(net, size))[:3]:
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
