"""Minimal routing by tables of distances, for graphs without a formula.

A breadth-first search from every router gives all distances. At each router a message
takes a link that reduces its distance. Of n such links it takes the one with index
(destination rank mod n), which spreads messages over links deterministically.
"""

from dataclasses import dataclass

import numpy as np

from dml.sim.networks.fabric import Paths, Rates, routes
from dml.sim.networks.loops import compiled_if_possible
from dml.types import BadInput

MAX_ROUTERS = 1 << 13  # whose distances take 128 MiB


@dataclass(frozen=True, eq=False)
class LinkTable:
    """Links of a graph, ordered by their first router, and all distances."""

    ends: np.ndarray  # links x 2: tail and head router
    first: np.ndarray  # routers + 1: links from router u start at first[u]
    far: np.ndarray  # routers x routers, int16: hops, -1 for no route


def table(cables: np.ndarray, routers: int) -> LinkTable:
    """Build the table of cables (n x 2), each of which is a link both ways.

    Links are ordered by tail, then head. Cables must be unique.
    """
    if routers > MAX_ROUTERS:
        raise BadInput(
            f"expected at most {MAX_ROUTERS} routers with routing by tables, "
            f"got {routers}; pass a smaller graph, with more ranks on each router"
        )
    both = np.concatenate([cables, cables[:, ::-1]])
    ends = both[np.lexsort((both[:, 1], both[:, 0]))].astype(np.int32)
    first = np.searchsorted(ends[:, 0], np.arange(routers + 1))
    return LinkTable(ends, first, distances(first, np.ascontiguousarray(ends[:, 1])))


def route(
    table: LinkTable,
    rates: Rates,
    first: np.ndarray,
    last: np.ndarray,
    dest: np.ndarray,
) -> Paths:
    """Return the routes of messages from routers `first` to ranks `dest` at `last`."""
    starts = np.concatenate([[0], np.cumsum(table.far[first, last], dtype=np.int64)])
    links = np.empty(starts[-1], np.int32)
    heads = np.ascontiguousarray(table.ends[:, 1])
    walk(table.first, heads, table.far, first, last, dest, starts, links)
    return routes(rates, starts, links)


@compiled_if_possible
def distances(first, heads):
    """Return all distances, by breadth-first search from every router."""
    routers = len(first) - 1
    far = np.full((routers, routers), -1, np.int16)
    queue = np.empty(routers, np.int64)
    for root in range(routers):
        row = far[root]
        row[root] = 0
        queue[0] = root
        seen, spot = 1, 0
        while spot < seen < routers:
            router = queue[spot]
            spot += 1
            for link in range(first[router], first[router + 1]):
                head = heads[link]
                if row[head] < 0:
                    row[head] = row[router] + 1
                    queue[seen] = head
                    seen += 1
    return far


@compiled_if_possible
def walk(first, heads, far, begin, end, dest, starts, links):
    """Fill in the links of every message."""
    for message in range(len(begin)):
        router, row = begin[message], far[end[message]]  # far is symmetric
        for spot in range(starts[message], starts[message + 1]):
            nearer = row[router] - 1
            choices = 0
            for link in range(first[router], first[router + 1]):
                choices += row[heads[link]] == nearer
            choice = dest[message] % choices
            link = first[router]
            while True:
                if row[heads[link]] == nearer:
                    if choice == 0:
                        break
                    choice -= 1
                link += 1
            links[spot] = link
            router = heads[link]
