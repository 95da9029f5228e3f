"""The bound by loads: brute force over all cuts and all trees, and real schedules."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

from dml import sim
from dml.sim.networks.loads import byte_seconds
from dml.sim.networks.named import network
from dml.sim.networks.routes import all_routes, packed_for
from dml.wire.collectives import COLLECTIVES
from dml.wire.collectives.trees.packed import packed
from tests.sim.networks.test_cuts import divisions
from tests.sim.networks.unequal import FREE, unequal_cables

NAMES = ("uniform", "hosts", "graph")


def routes_of(name, size, seed, folder):
    text = {
        "uniform": "0,1e-9,0",
        "hosts": f"hosts:{size}x{1 + seed % 2}{FREE}",
        "graph": unequal_cables(folder, seed, size),
    }[name]
    return all_routes(network(text, size), size)


def usage_of(routes, messages):
    """Return the nanoseconds per byte of each link and port; messages may repeat."""
    usage = np.zeros(routes.number)
    for source, dest in messages:
        for link, seconds in zip(
            routes.links[source][dest], routes.seconds[source][dest], strict=True
        ):
            usage[link] += seconds * 1e9
    return usage


def least(usages, rows, words):
    """Return the least T with usages · x <= T and rows · x >= words."""
    number = len(usages)
    most = np.append(np.transpose(usages), np.full((len(usages[0]), 1), -1), 1)
    enough = np.append(-np.array(rows, float), np.zeros((len(rows), 1)), 1)
    limits = np.append(np.zeros(len(most)), -np.array(words, float))
    cost = np.eye(number + 1)[-1]
    return linprog(cost, np.append(most, enough, 0), limits).fun


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", (2, 3, 5, 6))
def test_the_bound_is_that_of_all_cuts(name, size, tmp_path):
    pairs = [(a, b) for a, b in np.ndindex(size, size) if a != b]
    rows, words = [], []
    for inside in product((False, True), repeat=size):
        if any(inside) and not all(inside):
            rows.append([inside[b] and not inside[a] for a, b in pairs])
            words.append(1)
    for parts in divisions(size):
        part = {rank: k for k, ranks in enumerate(parts) for rank in ranks}
        rows.append([part[a] != part[b] for a, b in pairs])
        words.append(2 * (len(parts) - 1))
    for seed in range(3):
        routes = routes_of(name, size, seed, tmp_path)
        usages = [usage_of(routes, [pair]) for pair in pairs]
        expected = least(usages, rows, words)
        assert byte_seconds(routes) * 1e9 == pytest.approx(expected, rel=1e-4)


def out_trees(size, root):
    """Return the messages of all trees down from a root."""
    found = []
    for parents in product(range(size), repeat=size):
        reached = {root}
        for _ in range(size):
            reached |= {rank for rank in range(size) if parents[rank] in reached}
        if parents[root] == root and len(reached) == size:
            found.append([(parents[r], r) for r in range(size) if r != root])
    return found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", (2, 3, 4))
def test_no_mixture_of_all_trees_is_faster_and_the_best_is_close(name, size, tmp_path):
    """A word is reduced up a tree and broadcast down another tree of the same root."""
    for seed in range(4):
        routes = routes_of(name, size, seed, tmp_path)
        usages = []
        for root in range(size):
            trees = out_trees(size, root)
            assert len(trees) == size ** (size - 2)
            down = [usage_of(routes, tree) for tree in trees]
            up = [usage_of(routes, [pair[::-1] for pair in tree]) for tree in trees]
            usages += [one + other for one in up for other in down]
        best = least(usages, [np.ones(len(usages))], [1])
        bound = byte_seconds(routes) * 1e9
        assert bound <= best * (1 + 1e-9)
        assert bound >= 0.95 * best


@pytest.mark.parametrize("seed", range(4))
def test_no_schedule_is_faster_on_unequal_cables(seed, tmp_path):
    size, length = 6, 64_000
    net = network(unequal_cables(tmp_path, seed, size), size)
    bound = byte_seconds(all_routes(net, size))
    schedules = [
        algorithm.schedule(size, length)
        for algorithm in COLLECTIVES["allreduce"].values()
        if algorithm.schedule
    ]
    broadcast = packed_for(net, size, length)
    for rounds in (*schedules, packed(broadcast, size, length)):
        assert sim.evaluate(rounds, net, size).clocks.max() > bound * 4 * length
