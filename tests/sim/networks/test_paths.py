"""Every network's ways: connected, minimal, without loops, over its own links."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path

from dml.sim.links import RunningLinks
from dml.sim.networks.dragonfly import Dragonfly
from dml.sim.networks.fabric import Prices, Rates
from dml.sim.networks.fat_tree import FatTree
from dml.sim.networks.graph import Graph
from dml.sim.networks.hosts import Hosts
from dml.sim.networks.slim_fly import SlimFly
from dml.sim.networks.tables import table
from dml.sim.networks.torus import Torus

TREE = np.array([[0, 1], [0, 2], [1, 3], [1, 4], [2, 5]])
RATES = Rates(alpha=3e-6, beta=2e-9, hop=5e-7, link=4e-9)
NETWORKS = [
    *(Hosts(1, 3), Hosts(4, 3), Hosts(5, 1)),
    *(Torus((n,)) for n in (1, 2, 3, 4, 7, 8)),
    *(Torus(dims) for dims in [(3, 4), (2, 5), (1, 6), (3, 3, 4), (2, 2, 2, 3)]),
    *(FatTree(k) for k in (2, 4, 6)),
    *(Dragonfly(h) for h in (1, 2, 3)),
    *(SlimFly(q) for q in (3, 4, 5)),
    SlimFly(7, concentration=1),
    Graph(table(TREE, 6), (1.0,) * 10, (0, 3, 4, 5), 2),
]


def name(network):
    return str(network).partition(", rates")[0]


def all_pairs(network):
    rank = np.arange(network.capacity)
    return np.repeat(rank, len(rank)), np.tile(rank, len(rank))


def way(paths, message):
    return paths.links[paths.starts[message] : paths.starts[message + 1]]


def hops(ends, routers):
    graph = csr_matrix((np.ones(len(ends)), tuple(ends.T)), shape=(routers,) * 2)
    return shortest_path(graph, unweighted=True)


def distances(network):
    """Hops between routers; in a dragonfly with at most one global link, as it says."""
    ends = network.ends()
    routers = int(ends.max(initial=0)) + 1
    if not isinstance(network, Dragonfly):
        return hops(ends, routers)
    group = ends // (2 * network.h)
    local = ends[group[:, 0] == group[:, 1]]
    beyond = ends[group[:, 0] != group[:, 1]] + [0, routers]
    layers = hops(np.concatenate([local, local + routers, beyond]), 2 * routers)
    return np.minimum(layers[:routers, :routers], layers[:routers, routers:])


every = pytest.mark.parametrize("network", NETWORKS, ids=name)


@every
def test_ways_go_from_router_to_router_and_never_back(network):
    source, dest = all_pairs(network)
    paths, ends = network.paths(source, dest), network.ends()
    assert len(paths.starts) == len(source) + 1 and paths.starts[-1] == len(paths.links)
    assert paths.links.dtype == np.int32 and paths.starts.dtype == np.int64
    assert ((paths.links >= 0) & (paths.links < len(ends))).all()
    tails, heads = ends[paths.links].T
    message = np.repeat(np.arange(len(source)), np.diff(paths.starts))
    same = np.diff(message) == 0
    assert (heads[:-1] == tails[1:])[same].all()
    moved = np.diff(paths.starts) > 0
    here, there = network.at(source), network.at(dest)
    assert (moved == (here != there)).all()
    assert (tails[paths.starts[:-1][moved]] == here[moved]).all()
    assert (heads[paths.starts[1:][moved] - 1] == there[moved]).all()
    visits = np.stack([[*message, *range(len(here))], [*heads, *here]])
    assert len(np.unique(visits, axis=1).T) == len(visits.T)


@every
def test_no_way_is_longer_than_it_must_be_and_the_longest_is_the_diameter(network):
    source, dest = all_pairs(network)
    lengths = np.diff(network.paths(source, dest).starts)
    expected = distances(network)[network.at(source), network.at(dest)]
    assert (lengths == expected).all()
    assert lengths.max() == network.report(Prices()).diameter


@every
def test_a_message_alone_goes_the_way_it_goes_among_others(network):
    source, dest = all_pairs(network)
    together = network.paths(source, dest)
    for message in np.random.default_rng(0).integers(len(source), size=20):
        alone = network.paths(source[[message]], dest[[message]])
        links = way(together, message)
        assert (alone.links == links).all() and list(alone.starts) == [0, len(links)]
        assert alone.alpha[0] == together.alpha[message]
        assert alone.beta[0] == together.beta[message]


@every
def test_a_cable_is_two_links_and_every_link_has_its_two_numbers(network):
    ends, links = network.ends(), network.links()
    assert len(ends) == len(links.alpha) == len(links.beta)
    pairs = {*map(tuple, ends.tolist())}
    assert len(pairs) == len(ends) == 2 * network.report(Prices()).links
    assert all(a != b and (b, a) in pairs for a, b in pairs)


@every
def test_hosts_are_numbered_by_their_lowest_rank_and_neighbours_share_routers(network):
    hosts = network.hosts(network.capacity)
    assert len(hosts) == network.capacity
    assert [*dict.fromkeys(hosts)] == [*range(len(set(hosts)))]
    assert (np.diff(hosts) >= 0).all()
    assert (np.diff(network.at(np.arange(network.capacity))) >= 0).all()


@pytest.mark.parametrize("make", [Torus, FatTree, Dragonfly, SlimFly])
def test_ports_and_links_take_the_time_of_the_rates(make):
    network = make((5,) if make is Torus else 4, rates=RATES)
    paths, links = network.paths(np.arange(4), np.arange(4)[::-1]), network.links()
    assert (paths.alpha == 3e-6).all() and (paths.beta == 2e-9).all()
    assert (links.alpha == 5e-7).all() and (links.beta == 4e-9).all()


def test_ranks_of_one_host_exchange_by_memory_and_share_one_card():
    network = Hosts(3, 4, RATES, inside=(1e-7, 1e-10))
    paths = network.paths(np.array([0, 0, 1, 2]), np.array([3, 4, 11, 9]))
    assert list(paths.alpha) == [1e-7, 3e-6, 3e-6, 3e-6]
    assert list(paths.beta) == [1e-10, 2e-9, 2e-9, 2e-9]
    assert paths.links.tolist() == [0, 4, 0, 5, 0, 5] and paths.starts[1] == 0
    running, heads = RunningLinks(network), []
    for message in (1, 2, 3):
        head = 0.0
        for link in way(paths, message):
            head, _ = running.take_link(link, 1000, head)
        heads.append(head)
    assert heads == pytest.approx([1e-6, 5e-6, 9e-6])  # one after another, 4 µs each


@pytest.mark.parametrize("k", [4, 6])
def test_all_ways_to_a_rank_of_a_fat_tree_go_down_from_one_core(k):
    network = FatTree(k)
    rank = np.arange(network.capacity)
    for dest in rank:
        far = rank[rank // (k * k // 4) != dest // (k * k // 4)]
        links = network.paths(far, np.full(len(far), dest)).links.reshape(-1, 4)
        assert (links[:, 2:] == links[0, 2:]).all()


@pytest.mark.parametrize("k", [4, 6, 8])
def test_no_cyclic_shift_uses_a_link_of_a_fat_tree_twice(k):
    network = FatTree(k)
    rank = np.arange(network.capacity)
    for shift in rank:
        links = network.paths(rank, (rank + shift) % len(rank)).links
        assert len(set(links)) == len(links)


def test_ranks_of_one_router_are_reached_over_different_links():
    square = np.array([[0, 1], [0, 2], [1, 3], [2, 3]])
    network = Graph(table(square, 4), (1.0,) * 8, (0, 3), 2)
    links = network.paths(np.array([0, 0]), np.array([2, 3])).links
    assert len(set(links)) == 4
