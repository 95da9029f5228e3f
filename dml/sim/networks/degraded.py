"""The same network with some links slower: what ports and ways are stays as it is.

    0 ---- 1 --/\\/-- 2      factors {link of 1 to 2: 4.0}: β of this direction x 4

A cable that is worse both ways is two links; `ends` tells which.
"""

from collections.abc import Mapping
from math import inf
from typing import NamedTuple

import numpy as np

from dml.sim.networks.fabric import Links, Network, Paths, Prices, Rates, Report
from dml.types import BadInput


class Degraded(NamedTuple):
    """A network, and by how much the β of some of its links is multiplied."""

    network: Network
    factors: Mapping[int, float]  # by link

    @property
    def rates(self) -> Rates:
        return self.network.rates

    @property
    def capacity(self) -> int:
        return self.network.capacity

    def links(self) -> Links:
        alpha, beta = self.network.links()
        beta = beta.copy()
        for link, factor in self.factors.items():
            if not (0 <= link < len(beta) and 0 < factor < inf):
                raise BadInput(
                    f"expected links 0 ... {len(beta) - 1} and factors above 0, "
                    f"got {link}: {factor}; pass links that the network has"
                )
            beta[link] *= factor
        return Links(alpha, beta)

    def at(self, rank: np.ndarray) -> np.ndarray:
        return self.network.at(rank)

    def ends(self) -> np.ndarray:
        return self.network.ends()

    def paths(self, source: np.ndarray, dest: np.ndarray) -> Paths:
        return self.network.paths(source, dest)

    def hosts(self, size: int) -> list[int]:
        return self.network.hosts(size)

    def report(self, prices: Prices) -> Report:
        return self.network.report(prices)
