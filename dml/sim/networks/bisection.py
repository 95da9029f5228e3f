"""Two halves of a graph with few cables between them, where no formula tells: at most.

From the order of the routers' numbers and from Fiedler vectors (1973: the second
eigenvector of the Laplacian, here by power iteration from distances) a half each, made
better by the swaps of Kernighan & Lin (1970); the best is kept. Same on every machine.
"""

import numpy as np
from numba import njit

from dml.sim.networks.tables import Table

STARTS = 4  # Fiedler vectors, from as many routers
TURNS = 200  # of the power iteration


def bisection(table: Table) -> int:
    """Return how many cables the best halves found have between them."""
    routers = len(table.far)
    firsts = np.linspace(0, routers - 1, min(STARTS, routers)).astype(int)
    orders = [np.arange(routers), *(fiedler(table, first) for first in firsts)]
    heads = np.ascontiguousarray(table.ends[:, 1])
    return min(halve(table.first, heads, np.argsort(o, kind="stable")) for o in orders)


def fiedler(table: Table, first: int) -> np.ndarray:
    """Return nearly the Fiedler vector: smooth the distances from a router."""
    tails, heads = table.ends.T
    routers, degrees = len(table.far), np.diff(table.first)
    shift = 2 * max(degrees.max(initial=0), 1)  # makes the wanted eigenvalue largest
    vector = table.far[first].astype(float)
    for _ in range(TURNS):
        vector -= vector.mean()
        vector /= max(np.abs(vector).max(), 1e-300)
        neighbours = np.bincount(tails, weights=vector[heads], minlength=routers)
        vector = (shift - degrees) * vector + neighbours
    return vector.round(9)  # so that equals are equal: their order is by number


@njit(cache=True)
def halve(first, heads, order):
    """Cut an order of the routers in the middle, swap while it helps, count the cut."""
    routers = len(order)
    side = np.zeros(routers, np.int64)
    side[order[: routers // 2]] = 1
    gain = np.empty(routers, np.int64)  # fewer cables between, if this one changes side
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
        for turn in range(keep, routers // 2):  # take back what did not help
            one, two = swaps[turn]
            side[one], side[two] = side[two], side[one]
    return cut // 2


@njit(cache=True)
def swap(first, heads, side, gain, free, pair):
    """Swap a good pair of free routers; return how many cables fewer are cut."""
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
