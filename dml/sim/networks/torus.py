"""Torus of any number of dimensions: one rank per router, a ring in each dimension.

    +-0-1-2-3-+      dims (4,): a ring; (4, 4): 2-D; (4, 4, 4): 3-D; ...
    +---------+      rank = its coordinates, the last one fastest

A message crosses the dimensions in order, each in the shorter direction, or upwards if
both are equally long (dimension order: Dally & Seitz 1987). For sides n_1 ... n_d with
product N: diameter Σ⌊n_i/2⌋; N cables for each side above 2, N/2 for a side of 2.
Bisection with sides in descending order, n_e the first even one (d if none is):
2 Σ_{i≤e} Π_{j>i} n_j (Aroca & Fernández Anta 2014).
"""

from math import prod
from typing import NamedTuple

import numpy as np

from dml.sim.networks.fabric import (
    Links,
    Paths,
    Prices,
    Rates,
    Report,
    equal_links,
    routes,
)
from dml.sim.networks.loops import compiled_if_possible


class Torus(NamedTuple):
    """A torus; its links are sorted by rank, dimension and direction, up first.

    A side of 2 has only the links up.
    """

    dims: tuple[int, ...]
    rates: Rates = Rates()

    @property
    def capacity(self) -> int:
        return prod(self.dims)

    @property
    def degree(self) -> int:
        return sum(min(side, 3) - 1 for side in self.dims)

    def links(self) -> Links:
        return equal_links(self.rates, self.capacity * self.degree)

    def ends(self) -> np.ndarray:
        rank = np.arange(self.capacity)
        spots = np.unravel_index(rank, self.dims)
        heads = []
        for dim, side in enumerate(self.dims):
            for step in (1, -1)[: min(side, 3) - 1]:
                moved = [*spots]
                moved[dim] = (spots[dim] + step) % side
                heads.append(np.ravel_multi_index(moved, self.dims))
        tails = np.repeat(rank, self.degree)
        return np.stack([tails, np.array(heads, np.int64).T.reshape(-1)], 1)

    def at(self, rank: np.ndarray) -> np.ndarray:
        return np.asarray(rank)

    def paths(self, source: np.ndarray, dest: np.ndarray) -> Paths:
        source, dest = np.asarray(source), np.asarray(dest)
        sides = np.array(self.dims)
        hops = np.zeros(len(source), np.int64)
        below = 1
        for side in self.dims[::-1]:
            ahead = (dest // below - source // below) % side
            hops += np.minimum(ahead, side - ahead)
            below *= side
        starts = np.concatenate([[0], np.cumsum(hops)])
        links = np.empty(starts[-1], np.int32)
        walk(source, dest, sides, self.degree, starts, links)
        return routes(self.rates, starts, links)

    def hosts(self, size: int) -> list[int]:
        return list(range(size))

    def report(self, prices: Prices) -> Report:
        """Return the hardware; all cables of a folded torus are short."""
        routers, cables = self.capacity, self.capacity * self.degree // 2
        return Report(
            routers=routers,
            links=cables,
            diameter=sum(side // 2 for side in self.dims),
            bisection=bisection(self.dims),
            cost=prices.cost(
                routers * (self.degree + 1), short=cables + routers, long=0
            ),
        )


def bisection(dims: tuple[int, ...]) -> int:
    """Return the number of cables cut by a staircase cut across the longest sides.

    A side of 2 has one cable instead of a ring. A cut across it crosses N/2 cables,
    which may be fewer.
    """
    sides = sorted((side for side in dims if side > 1), reverse=True)
    total, below = 0, prod(sides)
    for side in sides:
        below //= side
        total += min(side - 1, 2) * below
        if side % 2 == 0:
            break
    return min(total, prod(sides) // 2) if 2 in sides else total


@compiled_if_possible
def walk(source, dest, sides, degree, starts, links):
    """Fill in the links of every message: link = rank * degree + its offset."""
    for message in range(len(source)):
        rank, goal, spot = source[message], dest[message], starts[message]
        below, place = 1, 0
        for side in sides:
            below *= side
        for side in sides:
            below //= side
            coordinate = rank // below % side
            ahead = (goal // below - coordinate) % side
            step = 1 if 2 * ahead <= side else -1
            for _ in range(min(ahead, side - ahead)):
                links[spot] = rank * degree + place + (step < 0)
                spot += 1
                after = (coordinate + step) % side
                rank += (after - coordinate) * below
                coordinate = after
            place += min(side, 3) - 1
