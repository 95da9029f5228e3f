"""Two levels: the ranks of a host share memory and one network card.

    rank rank rank    rank rank rank      inside a host: (α, β) of memory, no link
      +---host---+      +---host---+      between: up link of the source,
           | up, down        |            down link of the destination
           +---- crossbar ---+

H hosts of r ranks each: H·r ranks, 1 router of H ports, 2H links in one direction each,
bisection ⌊H/2⌋. The r ranks of a host share its card, so hierarchical collectives are
faster than others (Karonis et al. 2000).
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


class Hosts(NamedTuple):
    """H hosts of equal numbers of ranks; link h is up from host h, link H + h down.

    The nodes are the hosts 0 ... H - 1 and the crossbar H.
    """

    number: int  # number of hosts
    ranks: int  # number of ranks on each host
    rates: Rates = Rates()
    inside: tuple[float, float] = (2e-7, 1e-10)  # α, β of memory

    @property
    def capacity(self) -> int:
        return self.number * self.ranks

    def links(self) -> Links:
        return equal_links(self.rates, 2 * self.number)

    def ends(self) -> np.ndarray:
        host, crossbar = np.arange(self.number), np.full(self.number, self.number)
        up, down = np.stack([host, crossbar], 1), np.stack([crossbar, host], 1)
        return np.concatenate([up, down])

    def at(self, rank: np.ndarray) -> np.ndarray:
        return np.asarray(rank) // self.ranks

    def paths(self, source: np.ndarray, dest: np.ndarray) -> Paths:
        first, last = self.at(source), self.at(dest)
        near = first == last
        grid = np.stack([first, self.number + last], 1)
        grid[near] = -1
        paths = along(self.rates, grid)
        paths.alpha[near], paths.beta[near] = self.inside
        return paths

    def hosts(self, size: int) -> list[int]:
        return [rank // self.ranks for rank in range(size)]

    def report(self, prices: Prices) -> Report:
        """Return the hardware; all cables are short: hosts are in one row of racks."""
        return Report(
            routers=1,
            links=self.number,
            diameter=2 if self.number > 1 else 0,
            bisection=self.number // 2,
            cost=prices.cost(self.number, short=self.number, long=0),
        )
