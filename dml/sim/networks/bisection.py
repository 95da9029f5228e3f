"""An upper bound of the bisection width of a graph that has no formula.

Initial halves are the halves of the routers in order of their numbers, and in order of
Fiedler vectors (1973: the second eigenvector of the Laplacian, by power iteration from
the distances to a router). Swaps of routers (Kernighan & Lin 1970) improve each half.
The search is deterministic.
"""

import numpy as np
from numba import njit

from dml.sim.networks.tables import LinkTable

STARTS = 4  # number of Fiedler vectors, from different routers
ITERATIONS = 200  # of the power method


def bisection(table: LinkTable) -> int:
    """Return the least number of cables between two halves found by the search."""
    routers = len(table.far)
    firsts = np.linspace(0, routers - 1, min(STARTS, routers)).astype(int)
    orders = [np.arange(routers), *(fiedler(table, first) for first in firsts)]
    heads = np.ascontiguousarray(table.ends[:, 1])
    return min(
        halve(table.first, heads, np.argsort(order, kind="stable")) for order in orders
    )


def fiedler(table: LinkTable, first: int) -> np.ndarray:
    """Return an approximate Fiedler vector, from the distances to a router."""
    tails, heads = table.ends.T
    routers, degrees = len(table.far), np.diff(table.first)
    # power iteration with shift - Laplacian, whose second eigenvalue is the largest
    # after the mean is subtracted
    shift = 2 * max(degrees.max(initial=0), 1)
    vector = table.far[first].astype(float)
    for _ in range(ITERATIONS):
        vector -= vector.mean()
        vector /= max(np.abs(vector).max(), 1e-300)
        neighbours = np.bincount(tails, weights=vector[heads], minlength=routers)
        vector = (shift - degrees) * vector + neighbours
    return vector.round(9)  # equal values stay equal and keep their order


@njit(cache=True)
def halve(first, heads, order):
    """Halve an order of routers, improve the halves by swaps; return the cut."""
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
                crosses = side[heads[link]] != side[router]
                gain[router] += 1 if crosses else -1
                cut += crosses
        best = total = 0
        keep = 0
        free = np.ones(routers, np.bool_)
        for index in range(routers // 2):
            total += swap(first, heads, side, gain, free, swaps[index])
            if total > best:
                best, keep = total, index + 1
        for index in range(keep, routers // 2):  # undo the swaps after the best cut
            u, v = swaps[index]
            side[u], side[v] = side[v], side[u]
    return cut // 2  # a cable is v links


@njit(cache=True)
def swap(first, heads, side, gain, free, pair):
    """Swap a good pair of free routers; return the reduction of the cut."""
    u = v = -1
    for router in range(len(side)):
        if free[router] and side[router] and (u < 0 or gain[router] > gain[u]):
            u = router
    near = np.zeros(len(side), np.int64)
    near[heads[first[u] : first[u + 1]]] = 2  # a cable between them stays cut
    for router in range(len(side)):
        if free[router] and not side[router]:
            value = gain[router] - near[router]
            if v < 0 or value > gain[v] - near[v]:
                v = router
    saved = gain[u] + gain[v] - near[v]
    for router in (u, v):
        free[router] = False
        for link in range(first[router], first[router + 1]):
            head = heads[link]
            gain[head] += 2 if side[head] == side[router] else -2
        side[router] = 1 - side[router]
    pair[0], pair[1] = u, v
    return saved
