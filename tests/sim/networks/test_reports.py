"""What networks are made of and cost, against counting and against papers."""

from itertools import combinations

import numpy as np
import pytest

from dml.sim.networks.bisection import bisection
from dml.sim.networks.dragonfly import Dragonfly
from dml.sim.networks.fabric import Prices
from dml.sim.networks.fat_tree import FatTree
from dml.sim.networks.hosts import Hosts
from dml.sim.networks.slim_fly import SlimFly
from dml.sim.networks.tables import table
from dml.sim.networks.torus import Torus
from dml.types import BadInput

PRICES = Prices(port=100, short=10, long=1)


def cut(ends, half):
    inside = np.isin(ends, [*half])
    return int((inside[:, 0] != inside[:, 1]).sum()) // 2


def smallest_cut(ends, routers):
    halves = np.array([*combinations(range(routers), routers // 2)])
    inside = np.zeros((len(halves), routers), bool)
    np.put_along_axis(inside, halves, True, axis=1)
    return (inside[:, ends[:, 0]] != inside[:, ends[:, 1]]).sum(1).min() // 2


def searched(network):
    ends = network.ends()
    cables = ends[ends[:, 0] < ends[:, 1]]
    return bisection(table(cables, int(ends.max()) + 1))


SMALL = [(2,), (4,), (5,), (8,), (3, 3), (3, 4), (2, 3), (2, 5), (2, 4), (4, 4)]
SMALL += [(2, 2, 2), (3, 2, 2), (1, 6), (5, 3), (2, 6), (7, 2), (2, 2, 2, 2)]


@pytest.mark.parametrize("dims", SMALL)
def test_no_halves_of_a_torus_have_fewer_cables_between_than_reported(dims):
    network = Torus(dims)
    expected = smallest_cut(network.ends(), network.capacity)
    assert network.report(PRICES).bisection == expected
    assert searched(network) == expected


@pytest.mark.parametrize(
    "dims", [(16, 16), (16, 8, 4), (8, 8, 8), (5, 5, 4), (64,), (9, 9)]
)
def test_the_search_equals_the_formula_of_a_torus(dims):
    network = Torus(dims)
    assert searched(network) == network.report(PRICES).bisection


def test_a_torus_costs_a_port_for_each_end_of_its_short_cables():
    ring, grid = Torus((5,)).report(PRICES), Torus((2, 3)).report(PRICES)
    assert ring == (5, 5, 2, 2, 100 * 5 * 3 + 10 * (5 + 5))
    assert grid == (6, 9, 2, 3, 100 * 6 * 4 + 10 * (9 + 6))


@pytest.mark.parametrize("k", [2, 4, 8])
def test_a_fat_tree_has_half_as_many_cables_between_halves_as_ranks(k):
    network = FatTree(k)
    report, switches = network.report(PRICES), k * k // 2
    half = [r for r in range(2 * switches) if r % switches < switches // 2]
    assert report.bisection == cut(network.ends(), half) == network.capacity // 2
    assert report.routers == 5 * k * k // 4 == network.ends().max() + 1
    assert report.links == k**3 // 2 == len(network.ends()) // 2
    assert report.cost == 100 * report.routers * k + 10 * k**3 // 2 + k**3 // 4
    ports = np.bincount(network.ends()[:, 0])
    ranks = np.bincount(network.at(np.arange(network.capacity)), minlength=len(ports))
    assert k == 2 or set(ports + ranks) == {k}


@pytest.mark.parametrize("h", [1, 2, 3])
def test_a_balanced_dragonfly_joins_every_two_groups_once(h):
    network, a = Dragonfly(h), 2 * h
    ends, report = network.ends(), network.report(PRICES)
    groups = ends // a
    between = groups[groups[:, 0] != groups[:, 1]].tolist()
    assert len({*map(tuple, between)}) == len(between) == (a * h + 1) * a * h
    assert set(np.bincount(ends[:, 0])) == {a - 1 + h}
    assert report.routers == a * (a * h + 1) == ends.max() + 1
    short = len(ends) // 2 - len(between) // 2 + network.capacity
    ports = report.routers * (4 * h - 1)
    assert report.cost == 100 * ports + 10 * short + len(between) // 2
    half = [*range(h), *range(a, (h * h + 1) * a)]  # of group 0 what goes to 1 ... h²
    assert 2 * len(half) == network.routers
    assert cut(ends, half) == report.bisection <= searched(network)


def test_hosts_share_one_crossbar():
    report = Hosts(5, 8).report(PRICES)
    assert report == (1, 5, 2, 2, 5 * 100 + 5 * 10)
    assert Hosts(1, 8).report(PRICES).diameter == 0


def test_the_racks_of_slim_fly_keep_their_cables_short():
    q, degree, load = 5, 7, 4
    report = SlimFly(q).report(PRICES)
    inside = q * (2 * q * (q - 1) // 2 // 2 + q)  # columns 0 and 1, and between them
    assert report.links == q * q * degree
    ports, ranks = 2 * q * q * (degree + load), 2 * q * q * load
    expected = 100 * ports + 10 * (inside + ranks) + report.links - inside
    assert report.cost == expected


@pytest.mark.parametrize("q", [4, 5, 7, 8, 9, 11, 13])
def test_the_search_on_slim_fly_comes_near_the_bound_of_its_spectrum(q):
    """No halves have fewer than n λ/4 between, λ the second of the Laplacian."""
    routers, near = 2 * q * q, np.zeros((2 * q * q,) * 2)
    near[tuple(SlimFly(q).ends().T)] = 1
    bound = routers * np.linalg.eigvalsh(np.diag(near.sum(1)) - near)[1] / 4
    assert bound - 1e-6 <= SlimFly(q).report(PRICES).bisection <= 1.15 * bound


@pytest.mark.parametrize("seed", range(6))
def test_the_search_finds_the_smallest_cut_of_small_graphs(seed):
    random = np.random.default_rng(seed)
    pairs = np.array([*combinations(range(11), 2)])
    cables = pairs[random.random(len(pairs)) < 0.3]
    graph = table(cables, 11)
    assert bisection(graph) == smallest_cut(graph.ends, 11)


@pytest.mark.parametrize("seed, most", [(3, 17), (5, 19), (7, 12)])
def test_the_search_finds_cuts_that_fewer_starts_and_turns_miss(seed, most):
    random = np.random.default_rng(seed)
    pairs = np.array([*combinations(range(40), 2)])
    assert bisection(table(pairs[random.random(len(pairs)) < 0.1], 40)) <= most


def test_links_are_in_order_of_their_two_routers():
    links = table(np.array([[2, 1], [0, 3], [3, 2], [0, 1]]), 4).ends.tolist()
    assert links == sorted(links) and len(links) == 8


def test_a_table_for_too_many_routers_is_refused():
    with pytest.raises(BadInput, match="at most 8192 routers .* got 9000; pass"):
        table(np.array([[0, 1]]), 9000)
