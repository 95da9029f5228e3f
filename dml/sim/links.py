"""The links of a virtual network while it runs: what is on them, and what fails."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dml.sim.events import NEVER, Slow, SlowLink
from dml.sim.networks.crossing import cross


class Way(NamedTuple):
    """How messages go from one rank to another."""

    alpha: float
    beta: float
    links: np.ndarray


class RunningLinks:
    """What each link has carried, when it is free, and what is wrong with it."""

    def __init__(self, network: Any, troubles: Sequence[Slow | SlowLink] = ()):
        self.network, self.troubles = network, troubles
        self.alpha, self.beta = network.links()
        self.free = np.zeros(len(self.beta))
        self.bytes = np.zeros(len(self.beta), np.int64)
        self.ways: dict[tuple[int, int], Way] = {}
        self.lost: list[Any] = []  # messages that were under way for ever

    def way(self, source: int, dest: int) -> Way:
        key = source, dest
        if key not in self.ways:
            paths = self.network.paths(np.array([source]), np.array([dest]))
            alpha, beta = float(paths.alpha[0]), float(paths.beta[0])
            self.ways[key] = Way(alpha, beta, paths.links)
        return self.ways[key]

    def passable(self, source: int, dest: int, time: float) -> float:
        """When, from `time` on, a message can depart: what is cut may heal."""
        links = self.way(source, dest).links
        cuts = [
            each
            for each in self.troubles
            if each.factor == NEVER and each.hits(source, dest, links)
        ]
        for cut in sorted(cuts, key=lambda cut: cut.start):
            if cut.start <= time < cut.stop:
                time = cut.stop
        return time

    def carry(
        self, source: int, dest: int, nbytes: int, time: float
    ) -> tuple[float, float, float]:
        """Take a message over its links.

        Return when its head is at the in port, and its α and β there.
        """
        alpha, beta, links = self.way(source, dest)
        link_beta, factor = self.beta, 1.0
        for slow in self.troubles:
            if slow.start <= time < slow.stop and slow.hits(source, dest, links):
                if isinstance(slow, SlowLink):
                    link_beta = link_beta.copy()
                    link_beta[slow.link] *= slow.factor
                else:
                    factor *= slow.factor
        self.bytes[links] += nbytes
        head, beta = cross(time, nbytes, beta, links, self.alpha, link_beta, self.free)
        return head, alpha * factor, beta * factor
