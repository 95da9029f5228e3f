"""An upper bound of the bisection width of a graph that has no formula.

The first halves follow from the order of the routers' numbers and from Fiedler vectors
(1973: the second eigenvector of the Laplacian, by power iteration from distances). The
swaps of Kernighan & Lin (1970) improve each; the best is returned. The search is the
same on every machine.
"""

import numpy as np
from numba import njit

from dml.sim.networks.tables import Table

STARTS = 4  # number of Fiedler vectors, each from another router
ITERATIONS = 200  # of the power method


def bisection(table: Table) -> int:
    """Return the fewest cables between two halves that the search finds."""
    routers = len(table.far)
    firsts = np.linspace(0, routers - 1, min(STARTS, routers)).astype(int)
    orders = [np.arange(routers), *(fiedler(table, first) for first in firsts)]
    heads = np.ascontiguousarray(table.ends[:, 1])
    return min(halve(table.first, heads, np.argsort(o, kind="stable")) for o in orders)


def fiedler(table: Table, first: int) -> np.ndarray:
    """Return an approximate Fiedler vector, from the distances to a router."""
    tails, heads = table.ends.T
    routers, degrees = len(table.far), np.diff(table.first)
    shift = 2 * max(
        degrees.max(initial=0), 1
    )  # makes the second eigenvalue the largest
    vector = table.far[first].astype(float)
    for _ in range(ITERATIONS):
        vector -= vector.mean()
        vector /= max(np.abs(vector).max(), 1e-300)
        neighbours = np.bincount(tails, weights=vector[heads], minlength=routers)
        vector = (shift - degrees) * vector + neighbours
    return vector.round(9)  # equal values stay equal and keep their order


@njit(cache=True)
def halve(first, heads, order):
    """Split an order of routers in the middle, improve by swaps, return the cut."""
    routers = len(order)
    side = np.zeros(routers, np.int64)
    side[order[: routers // 2]] = 1
    gain = np.empty(routers, np.int64)  # reduction of the cut if a router changes side
    swaps = np.empty((routers // 2, 2), np.int64)
    best, cut = 1, 0
    while best > 0:
        cut = 0
        for router in range(routers):
            gain[router] = 0
            for link in range(first[router], first[router + 1]):
                other = side[heads[link]] != side[router]
                gain[router] += 1 if other else -1
                cut += other
        best = total = 0
        keep = 0
        free = np.ones(routers, np.bool_)
        for turn in range(routers // 2):
            total += swap(first, heads, side, gain, free, swaps[turn])
            if total > best:
                best, keep = total, turn + 1
        for turn in range(keep, routers // 2):  # undo the swaps after the best cut
            one, two = swaps[turn]
            side[one], side[two] = side[two], side[one]
    return cut // 2


@njit(cache=True)
def swap(first, heads, side, gain, free, pair):
    """Swap a good pair of free routers; return the reduction of the cut."""
    one = two = -1
    for router in range(len(side)):
        if free[router] and side[router] and (one < 0 or gain[router] > gain[one]):
            one = router
    near = np.zeros(len(side), np.int64)
    near[heads[first[one] : first[one + 1]]] = 2  # a cable between them stays cut
    for router in range(len(side)):
        if free[router] and not side[router]:
            value = gain[router] - near[router]
            if two < 0 or value > gain[two] - near[two]:
                two = router
    saved = gain[one] + gain[two] - near[two]
    for router in (one, two):
        free[router] = False
        for link in range(first[router], first[router + 1]):
            head = heads[link]
            gain[head] += 2 if side[head] == side[router] else -2
        side[router] = 1 - side[router]
    pair[0], pair[1] = one, two
    return saved
