"""Dragonfly: groups of fully connected routers (Kim, Dally, Scott & Abts 2008).

    group: a = 2h routers, all joined        router: h ranks, a - 1 local links,
      0---1                                          h global ones
      | X |===== one global link =====       groups: g = a·h + 1, every two joined once
      2---3     to every other group

a·h·g ranks, diameter 3. Global port j of group G is at its router ⌊j/h⌋ and leads to
port a·h - 1 - j of group G + j + 1 (mod g). Routing is minimal in the sense of the
paper: a local link, one global link, a local link. Two consecutive global links are
never used, even where they are shorter.
Bisection h⁴ + h²: all pairs of h² groups on either side, and one group halved.
"""

from typing import NamedTuple

import numpy as np

from dml.sim.networks.fabric import (
    Links,
    Paths,
    Prices,
    Rates,
    Report,
    along,
    equal_links,
)


class Dragonfly(NamedTuple):
    """A balanced dragonfly; local links by router, then global links by group."""

    h: int  # ranks per router, and global links per router
    rates: Rates = Rates()

    @property
    def groups(self) -> int:
        return 2 * self.h**2 + 1

    @property
    def routers(self) -> int:
        return 2 * self.h * self.groups

    @property
    def capacity(self) -> int:
        return self.h * self.routers

    def links(self) -> Links:
        return equal_links(self.rates, self.routers * (3 * self.h - 1))

    def ends(self) -> np.ndarray:
        h, a, g = self.h, 2 * self.h, self.groups
        tail, other = np.divmod(np.arange(self.routers * (a - 1)), a - 1)
        other += other >= tail % a
        local = np.stack([tail, tail // a * a + other], 1)
        group, port = np.divmod(np.arange(g * a * h), a * h)
        far = (group + port + 1) % g
        tail, head = group * a + port // h, far * a + (a * h - 1 - port) // h
        return np.concatenate([local, np.stack([tail, head], 1)])

    def at(self, rank: np.ndarray) -> np.ndarray:
        return np.asarray(rank) // self.h

    def paths(self, source: np.ndarray, dest: np.ndarray) -> Paths:
        h, a, g = self.h, 2 * self.h, self.groups
        first, last = self.at(source), self.at(dest)
        near = first // a == last // a
        port = (last // a - first // a - 1) % g
        leave = np.where(near, last, first // a * a + port // h)
        enter = np.where(near, last, last // a * a + (a * h - 1 - port) // h)
        beyond = self.routers * (a - 1) + first // a * (a * h) + port
        grid = [local(first, leave, a), np.where(near, -1, beyond)]
        return along(self.rates, np.stack([*grid, local(enter, last, a)], 1))

    def group(self, rank: np.ndarray) -> np.ndarray:
        """Return the group of each rank."""
        return self.at(rank) // (2 * self.h)

    def hosts(self, size: int) -> list[int]:
        return list(range(size))

    def report(self, prices: Prices) -> Report:
        """Return the hardware; cables are short in a group and long between groups."""
        h, routers = self.h, self.routers
        inside, between = routers * (2 * h - 1) // 2, routers * h // 2
        return Report(
            routers=routers,
            links=inside + between,
            diameter=3,
            bisection=h**4 + h**2,
            cost=prices.cost(
                routers * (4 * h - 1), short=inside + self.capacity, long=between
            ),
        )


def local(tail: np.ndarray, head: np.ndarray, a: int) -> np.ndarray:
    """Return the link from one router of a group to another; -1 if they are equal."""
    link = tail * (a - 1) + head % a - (head > tail)
    return np.where(tail == head, -1, link)
