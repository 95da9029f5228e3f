"""Lower bounds of all-reduces: closed forms, and no schedule is faster."""

import numpy as np
import pytest

from dml import sim
from dml.sim.networks.cuts import allreduce_bound
from dml.sim.networks.named import network
from dml.sim.networks.partitions import Capacities, byte_seconds, capacities
from dml.wire.collectives import COLLECTIVES

ALPHA, BETA = 1e-6, 1e-9


@pytest.mark.parametrize("size", (1, 2, 5, 64))
def test_ports_bound_a_uniform_network(size):
    latency, byte = allreduce_bound(sim.Uniform(ALPHA, BETA), size)
    assert latency == pytest.approx((size - 1).bit_length() * ALPHA)
    assert byte == pytest.approx(2 * (size - 1) / size * BETA)


def test_the_cards_of_hosts_bound_more_than_their_memory():
    """H cards carry 2(H - 1) buffers; memory has a tenth of the seconds a byte."""
    assert allreduce_bound(network("hosts:4x8", 32), 32).byte == pytest.approx(
        2 * 3 / 4 * BETA
    )


def test_a_network_with_slow_links_is_bound_by_them():
    """A ring of 8 ranks has 2 links into each half, which carry 2 buffers.

    A message over a slow link occupies an in port for all of its time.
    """
    from dml.sim.networks.torus import Torus

    net = Torus((8,))
    slow = net._replace(rates=net.rates._replace(link=1e-8))
    assert byte_seconds(capacities(slow, 8, BETA), 8) == pytest.approx(
        max(2 * 1 / 4, 2 * 3 / 8, 2 * 7 / 16) * 1e-8, rel=1e-5
    )
    assert allreduce_bound(slow, 8).byte == pytest.approx(2 * 7 / 8 * 1e-8, rel=1e-5)
    assert allreduce_bound(net, 8).byte == pytest.approx(2 * 7 / 8 * BETA)


def test_a_cut_between_ranks_that_are_not_adjacent_is_found(tmp_path):
    """Even and odd ranks are joined by one cable of a tenth of a link's rate."""
    path = tmp_path / "two.txt"
    pairs = [(a, b) for a in range(8) for b in range(a + 2, 8, 2)]
    path.write_text("".join(f"{a} {b}\n" for a, b in pairs) + "0 1 0.1\n")
    bound = allreduce_bound(network(f"graph:{path}", 8), 8)
    assert bound.byte == pytest.approx(10 * BETA, rel=1e-5)


def random_graph(rng, ranks, routers):
    """Return the capacities of random cables; rank r is at router r."""
    cables = [(a, a + 1) for a in range(routers - 1)]
    cables += [tuple(rng.choice(routers, 2, replace=False)) for _ in range(routers)]
    tail, head = np.array(cables + [pair[::-1] for pair in cables]).T + ranks
    at = np.arange(ranks) + ranks
    tail, head = np.r_[tail, at - ranks, at], np.r_[head, at, at - ranks]
    units = (rng.integers(1, 9, len(tail)) << 16).astype(np.int32)
    return Capacities(tail, head, units, ranks + routers, 1.0)


def enters(graph, part, ranks):
    """Return the units into a part, of the best of all choices of its routers."""
    found = []
    for chosen in range(1 << (graph.nodes - ranks)):
        inside = np.zeros(graph.nodes, bool)
        inside[part] = True
        inside[ranks:] = [chosen >> k & 1 for k in range(graph.nodes - ranks)]
        found.append(graph.units[inside[graph.head] & ~inside[graph.tail]].sum())
    return min(found)


def divisions(ranks):
    """Yield all partitions of the ranks."""
    if ranks == 0:
        yield []
        return
    for parts in divisions(ranks - 1):
        yield [*parts, [ranks - 1]]
        for k, part in enumerate(parts):
            yield [*parts[:k], [*part, ranks - 1], *parts[k + 1 :]]


@pytest.mark.parametrize("ranks, routers", [(2, 2), (3, 5), (4, 6), (5, 5), (6, 7)])
def test_the_best_of_all_partitions_is_found(ranks, routers):
    for seed in range(4):
        graph = random_graph(np.random.default_rng(seed), ranks, routers)
        sets = [[r for r in range(ranks) if k >> r & 1] for k in range(1 << ranks)]
        costs = {tuple(part): enters(graph, part, ranks) for part in sets}
        most = max(
            2 * (len(parts) - 1) / sum(costs[tuple(part)] for part in parts)
            for parts in divisions(ranks)
            if len(parts) > 1
        )
        assert byte_seconds(graph, ranks) == pytest.approx(most, rel=1e-4)


@pytest.mark.parametrize("text", ("hosts:4x4", "torus:4x4", "fat_tree", "slim_fly:5"))
def test_no_schedule_is_faster_than_the_bound(text):
    net = network(text, 16)
    bound = allreduce_bound(net, 16)
    for name in ("ring", "swing", "halving_doubling", "multiplying", "double_tree"):
        for nbytes in (64, 1 << 16, 1 << 20):
            schedule = COLLECTIVES["allreduce"][name].schedule(16, nbytes // 4)
            took = sim.evaluate(schedule, net, 16).clocks.max()
            assert took > bound.seconds(nbytes) > 0
