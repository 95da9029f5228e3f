"""Fat tree: 3 levels of routers of k ports (Al-Fares et al. 2008).

    core      (k/2)²       core (j, i): to switch j of every pod
              /    \\
    upper   k/2 per pod     switch j: to cores (j, 0 ... k/2 - 1)
             |  X  |
    edge    k/2 per pod     k/2 ranks each

k pods: k³/4 ranks, 5k²/4 routers, k³/2 cables between them, diameter 4, bisection k³/8:
half of the ranks (Leiserson 1985). Switches are routers. D-mod-k routing: the upper
switch and the core are digits of the destination (j = dest mod k/2,
i = ⌊dest/(k/2)⌋ mod k/2), so that messages to the ranks of one switch, and those of any
cyclic shift, spread over all up links (Zahavi 2010).
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


class FatTree(NamedTuple):
    """A fat tree of n = k³/4 ranks.

    Links: n from edge up, n up to cores, n down from cores, n down to edge. Routers:
    edge switches by pod, then upper switches by pod, then cores.
    """

    k: int  # ports of a router, even
    rates: Rates = Rates()

    @property
    def capacity(self) -> int:
        return self.k**3 // 4

    def links(self) -> Links:
        return equal_links(self.rates, 4 * self.capacity)

    def ends(self) -> np.ndarray:
        half, switches = self.k // 2, self.k**2 // 2
        lower, port = np.divmod(np.arange(self.capacity), half)
        pod, place = np.divmod(lower, half)
        first = np.stack([lower, switches + pod * half + port], 1)
        second = np.stack([switches + lower, 2 * switches + place * half + port], 1)
        return np.concatenate([first, second, second[:, ::-1], first[:, ::-1]])

    def at(self, rank: np.ndarray) -> np.ndarray:
        return np.asarray(rank) // (self.k // 2)

    def paths(self, source: np.ndarray, dest: np.ndarray) -> Paths:
        half, ranks = self.k // 2, self.capacity
        first, last = self.at(source), self.at(dest)
        near, same_pod = first == last, first // half == last // half
        j, i = np.asarray(dest) % half, last % half
        grid = np.full((len(first), 4), -1, np.int64)
        grid[:, 0] = first * half + j
        grid[:, 1] = ranks + (first // half * half + j) * half + i
        grid[:, 2] = 2 * ranks + (last // half * half + j) * half + i
        grid[:, 3] = 3 * ranks + last * half + j
        grid[same_pod, 1:3] = -1
        grid[near] = -1
        return along(self.rates, grid)

    def group(self, rank: np.ndarray) -> np.ndarray:
        """Return the pod of each rank."""
        return self.at(rank) // (self.k // 2)

    def hosts(self, size: int) -> list[int]:
        return list(range(size))

    def report(self, prices: Prices) -> Report:
        """Return the hardware; cables inside a pod are short, cables to cores long."""
        routers, ranks = 5 * self.k**2 // 4, self.capacity
        return Report(
            routers=routers,
            links=2 * ranks,
            diameter=4,
            bisection=self.k**3 // 8,
            cost=prices.cost(routers * self.k, short=2 * ranks, long=ranks),
        )
