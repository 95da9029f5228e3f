"""The links of a virtual network while it runs: what is on them, and what fails."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dml.sim.events import NEVER, Slow, SlowLink


class Way(NamedTuple):
    """How messages go from one rank to another."""

    alpha: float
    beta: float
    links: list[int]


class RunningLinks:
    """What each link has carried, when it is free, and what is wrong with it."""

    def __init__(self, network: Any, troubles: Sequence[Slow | SlowLink] = ()):
        self.network, self.troubles = network, troubles
        self.alpha, self.beta = (each.tolist() for each in network.links())
        self.free = [0.0] * len(self.beta)
        self.bytes = [0] * len(self.beta)
        self.ways: dict[tuple[int, int], Way] = {}
        self.lost: list[Any] = []  # messages that were under way for ever

    def way(self, source: int, dest: int) -> Way:
        key = source, dest
        if key not in self.ways:
            paths = self.network.paths(np.array([source]), np.array([dest]))
            alpha, beta = float(paths.alpha[0]), float(paths.beta[0])
            self.ways[key] = Way(alpha, beta, paths.links.tolist())
        return self.ways[key]

    def passable(self, source: int, dest: int, time: float) -> float:
        """When to try again to depart, if not at `time`: what is cut may heal."""
        links = self.way(source, dest).links
        for cut in self.troubles:
            cuts = cut.factor == NEVER and cut.start <= time < cut.stop
            if cuts and cut.hits(source, dest, links):
                time = cut.stop
        return time

    def slowed(self, source: int, dest: int, time: float) -> float:
        """How many times as long a message that departs now holds its ports."""
        factor = 1.0
        for slow in self.troubles:
            if isinstance(slow, Slow) and slow.start <= time < slow.stop:
                factor *= slow.factor if slow.hits(source, dest, ()) else 1.0
        return factor

    def cross(self, link: int, nbytes: int, time: float) -> tuple[float, float]:
        """Take a link when it is free; return when the head is through, and its β."""
        beta = self.beta[link]
        for slow in self.troubles:
            if isinstance(slow, SlowLink) and slow.start <= time < slow.stop:
                beta *= slow.factor if slow.link == link else 1.0
        time = max(time, self.free[link])
        self.free[link] = time + nbytes * beta
        self.bytes[link] += nbytes
        return time + self.alpha[link], beta
