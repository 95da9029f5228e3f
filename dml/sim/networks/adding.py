"""A network whose routers add: in-network reduction (Graham 2016, Sapio 2021).

    0  1  2   3  4  5     ranks
     \\ | /     \\ | /
    router 0 — router 1   the tree of routers; each has two nodes: one adds, one copies

Nodes are the ranks, then the nodes of the routers that add, then those that copy. A
router has separate memory: messages from several ranks arrive at once, and messages
to all of them leave at once, over one cable each. Cables between routers are those of
the inner network; messages go between neighbours in the tree.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import breadth_first_order

from dml.sim.networks.fabric import Links, Paths
from dml.sim.networks.uniform import Uniform
from dml.wire.plans.in_network import Tree


class Adding(NamedTuple):
    """A network with routers that add; the last links are the cables to the ranks."""

    inner: Any
    tree: Tree
    routers: np.ndarray  # of the inner network, in the order of the tree

    @property
    def rates(self) -> Any:
        return self.inner.rates

    @property
    def capacity(self) -> int:
        return self.tree.nodes

    @property
    def memory(self) -> slice:
        """Return the nodes that receive several messages at once."""
        return slice(self.tree.ranks, self.tree.ranks + self.tree.routers)

    def port(self) -> tuple[float, float]:
        """Return the α and β between a rank and its router."""
        return getattr(self.inner, "inside", self.inner.rates[:2])

    def links(self) -> Links:
        alpha, beta = self.inner.links()
        latency, byte = self.port()
        cables = np.ones(self.tree.ranks)
        return Links(np.append(alpha, latency * cables), np.append(beta, byte * cables))

    def paths(self, source: np.ndarray, dest: np.ndarray) -> Paths:
        source, dest = np.asarray(source), np.asarray(dest)
        ranks, number = self.tree.ranks, len(self.inner.links().beta)
        sends, receives = source < ranks, dest < ranks
        alpha, beta = (np.where(sends, rate, 0.0) for rate in self.port())
        link = np.where(receives & ~sends, number + dest, -1)
        between = ~sends & ~receives
        tail, head = (
            self.routers[(ends[between] - ranks) % self.tree.routers]
            for ends in (source, dest)
        )
        link[between] = self.cables(tail, head)
        starts = np.concatenate([[0], np.cumsum(link >= 0)])
        return Paths(alpha, beta, starts, link[link >= 0].astype(np.int32))

    def cables(self, tail: np.ndarray, head: np.ndarray) -> np.ndarray:
        """Return the links between routers; -1 between the nodes of one router."""
        if isinstance(self.inner, Uniform):
            return np.full(len(tail), -1)
        ends = self.inner.ends()
        width = ends.max() + 1
        keys = ends @ [width, 1]
        order = np.argsort(keys, kind="stable")
        place = np.searchsorted(keys[order], tail * width + head)
        found = order[np.minimum(place, len(order) - 1)]
        return np.where(tail == head, -1, found)

    def hosts(self, size: int) -> list[int]:
        return list(range(size))


def adding(inner: Any, size: int) -> Adding:
    """Return the network of `size` ranks whose routers add.

    The root of the tree is in the middle of a longest route, and routers are reached
    from it by the fewest cables.
    """
    if isinstance(inner, Uniform):
        return Adding(inner, Tree(size, (size,) * (size + 1)), np.zeros(1, np.int64))
    at, ends = inner.at(np.arange(size)), inner.ends()
    number = int(max(ends.max(initial=0), at.max())) + 1
    graph = csr_matrix((np.ones(len(ends)), ends.T), shape=(number, number))
    far = farthest(graph, int(at[0]), at)[-1]
    route = farthest(graph, far, at)
    root = route[len(route) // 2]
    _, above = breadth_first_order(graph, root)
    used = {root}
    for router in np.unique(at).tolist():
        while router not in used:
            used.add(router)
            router = int(above[router])
    routers = np.array(sorted(used))
    above[root] = root
    parents = np.concatenate([at, above[routers]])
    numbers = size + np.searchsorted(routers, parents)
    return Adding(inner, Tree(size, tuple(numbers.tolist())), routers)


def farthest(graph: csr_matrix, start: int, at: np.ndarray) -> list[int]:
    """Return a shortest route to the router in `at` that is the farthest from one."""
    order, above = breadth_first_order(graph, start)
    route = [int(order[np.isin(order, at)][-1])]
    while route[-1] != start:
        route.append(int(above[route[-1]]))
    return route[::-1]
