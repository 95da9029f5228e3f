"""A network without links: all pairs of ranks have the same rates.

One-port model, full duplex: a message of m bytes occupies its sender's out port and its
receiver's in port for α + mβ seconds each.
"""

import sys
from typing import NamedTuple

import numpy as np

from dml.sim.networks.fabric import Links, Paths


class Uniform(NamedTuple):
    """Rates of messages between all pairs of ranks, and of reductions."""

    alpha: float = 1e-6  # seconds per message
    beta: float = 1e-9  # seconds per byte
    gamma: float = 1e-10  # seconds per reduced byte
    eager: int = 65536  # bytes up to which a Send returns before its receive is posted
    host: int = 0  # number of ranks per virtual host; 0 places all ranks on one host

    @property
    def rates(self) -> "Uniform":
        return self

    @property
    def capacity(self) -> int:
        """Return the largest number of ranks: no limit."""
        return sys.maxsize

    def links(self) -> Links:
        return Links(np.empty(0), np.empty(0))

    def paths(self, source: np.ndarray, dest: np.ndarray) -> Paths:
        same = np.ones(len(source))
        starts = np.zeros(len(source) + 1, np.int64)
        alpha, beta = self.alpha * same, self.beta * same
        return Paths(alpha, beta, starts, np.empty(0, np.int32))

    def hosts(self, size: int) -> list[int]:
        return [rank // (self.host or size) for rank in range(size)]
