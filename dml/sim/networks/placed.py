"""Ranks at given places of a network, as those of a job among other jobs.

    places  0   1   2   3   4   5   6   7        of the network
            -   0   1   -   2   -   -   3        ranks of a job that got 1, 2, 4 and 7

A scheduler gives a job the places that other jobs have left free, in the order of
their numbers.
"""

from typing import NamedTuple

import numpy as np

from dml.sim.networks.dragonfly import Dragonfly
from dml.sim.networks.fabric import Links, Paths, Prices, Rates, Report
from dml.sim.networks.fat_tree import FatTree

LONGEST = 64  # most places of another job


class Placed(NamedTuple):
    """A network with groups whose rank r is at place places[r] of another one."""

    inner: Dragonfly | FatTree
    places: np.ndarray

    @property
    def rates(self) -> Rates:
        return self.inner.rates

    @property
    def capacity(self) -> int:
        return len(self.places)

    def links(self) -> Links:
        return self.inner.links()

    def paths(self, source: np.ndarray, dest: np.ndarray) -> Paths:
        return self.inner.paths(self.places[source], self.places[dest])

    def at(self, rank: np.ndarray) -> np.ndarray:
        return self.inner.at(self.places[rank])

    def ends(self) -> np.ndarray:
        return self.inner.ends()

    def group(self, rank: np.ndarray) -> np.ndarray:
        """Return the group of each rank, between which the links are global."""
        return self.inner.group(self.places[rank])

    def hosts(self, size: int) -> list[int]:
        hosts = self.inner.hosts(self.inner.capacity)
        return [hosts[place] for place in self.places[:size].tolist()]

    def report(self, prices: Prices) -> Report:
        return self.inner.report(prices)


def allocation(
    capacity: int, size: int, busy: float, rng: np.random.Generator
) -> np.ndarray:
    """Return the places of a job of `size` ranks, in ascending order.

    Other jobs, of 1 to LONGEST adjacent places each, take a share `busy` of the places
    at random; the job takes free ones at random.

    Args:
      capacity: Number of places.
      size: Number of ranks of the job.
      busy: Share of the places that other jobs have, at most.
      rng: Random numbers.
    """
    free = np.ones(capacity, bool)
    most = min(int(busy * capacity), capacity - size)
    while (taken := capacity - int(free.sum())) < most:
        length = min(int(rng.integers(1, LONGEST + 1)), most - taken)
        first = int(rng.integers(capacity))
        free[(first + np.arange(length)) % capacity] = False
    return np.sort(rng.choice(np.flatnonzero(free), size, replace=False))
