"""Two levels: ranks of one host share memory, and one network card to the others.

    rank rank rank    rank rank rank      inside a host: (α, β) of memory, no link
      +---host---+      +---host---+      between: the up link of the one,
           | up, down        |            the down link of the other
           +---- crossbar ---+

Hosts H, ranks r each: H·r ranks, 1 router of H ports, 2H links in one direction each,
bisection ⌊H/2⌋. The r ranks of a host wait for each other at its card, which is why
hierarchical collectives gain (Karonis et al. 2000).
"""

from typing import NamedTuple

import numpy as np

from dml.sim.networks.fabric import Links, Paths, Prices, Rates, Report, alike, along


class Hosts(NamedTuple):
    """So many hosts of so many ranks each; link h goes up from host h, link H + h down.

    Its nodes are the hosts 0 ... H - 1 and the crossbar H.
    """

    number: int  # of hosts
    ranks: int  # on each
    rates: Rates = Rates()
    inside: tuple[float, float] = (2e-7, 1e-10)  # α, β of memory

    @property
    def capacity(self) -> int:
        return self.number * self.ranks

    def links(self) -> Links:
        return alike(self.rates, 2 * self.number)

    def ends(self) -> np.ndarray:
        host, crossbar = np.arange(self.number), np.full(self.number, self.number)
        up, down = np.stack([host, crossbar], 1), np.stack([crossbar, host], 1)
        return np.concatenate([up, down])

    def at(self, rank: np.ndarray) -> np.ndarray:
        return np.asarray(rank) // self.ranks

    def paths(self, source: np.ndarray, dest: np.ndarray) -> Paths:
        here, there = self.at(source), self.at(dest)
        near = here == there
        grid = np.stack([here, self.number + there], 1)
        grid[near] = -1
        paths = along(self.rates, grid)
        paths.alpha[near], paths.beta[near] = self.inside
        return paths

    def hosts(self, size: int) -> list[int]:
        return [rank // self.ranks for rank in range(size)]

    def report(self, prices: Prices) -> Report:
        """All cables are short: those of one row of racks."""
        return Report(
            routers=1,
            links=self.number,
            diameter=2 if self.number > 1 else 0,
            bisection=self.number // 2,
            cost=prices.cost(self.number, short=self.number, long=0),
        )
