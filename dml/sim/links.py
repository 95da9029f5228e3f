"""State of the links of a virtual network: occupancy, failures and losses."""

import random
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dml.sim.events import NEVER, Loss, Nat, Slow, SlowLink


class Route(NamedTuple):
    """Port rates and links of messages from one rank to another."""

    alpha: float
    beta: float
    links: list[int]


class RunningLinks:
    """Occupancy and failures of the links of a running network."""

    def __init__(
        self, network: Any, events: Sequence[Slow | SlowLink | Loss | Nat] = ()
    ):
        self.network = network
        self.failures = [e for e in events if isinstance(e, Slow | SlowLink)]
        self.losses = [e for e in events if isinstance(e, Loss)]
        self.nats = [e for e in events if isinstance(e, Nat)]
        # generators of losses, by their seed and the source of the messages
        self.draws: dict[tuple[int, int], random.Random] = {}
        self.opened: set[tuple[int, int]] = set()  # (rank behind a NAT, its receiver)
        self.alpha, self.beta = (rates.tolist() for rates in network.links())
        self.free = [0.0] * len(self.beta)  # time in s from which each link is free
        # ranks that receive several messages at once
        self.memory = range(sys.maxsize)[getattr(network, "memory", slice(0))]
        self.routes: dict[tuple[int, int], Route] = {}
        self.lost: list[Any] = []  # messages that can never arrive

    def route(self, source: int, dest: int) -> Route:
        key = source, dest
        if key not in self.routes:
            paths = self.network.paths(np.array([source]), np.array([dest]))
            alpha, beta = float(paths.alpha[0]), float(paths.beta[0])
            self.routes[key] = Route(alpha, beta, paths.links.tolist())
        return self.routes[key]

    def loses(self, source: int, dest: int, time: float) -> bool:
        """Return whether a message that is sent at `time` is lost.

        The caller passes all messages of a source, in the order of their sends.
        """
        for loss in self.losses if source != dest else ():
            if source in loss.ranks and dest in loss.others:
                key = loss.seed, source
                if key not in self.draws:
                    self.draws[key] = random.Random(f"{loss.seed} {source}")
                lost = self.draws[key].random() < loss.share
                if lost and loss.start <= time < loss.stop:
                    return True
        for nat in self.nats:
            if nat.start <= time < nat.stop:
                if source in nat.ranks:
                    self.opened.add((source, dest))
                if dest in nat.ranks and (dest, source) not in self.opened:
                    return True
        return False

    def first_open(self, source: int, dest: int, time: float) -> float:
        """Return the first time from `time` on at which no failure cuts the route."""
        links = self.route(source, dest).links
        for cut in self.failures:
            cuts = cut.factor == NEVER and cut.start <= time < cut.stop
            if cuts and cut.affects(source, dest, links):
                time = cut.stop
        return time

    def slowdown(self, source: int, dest: int, time: float) -> float:
        """Return the factor of the port time of a message that departs at `time`."""
        factor = 1.0
        for slow in self.failures:
            if isinstance(slow, Slow) and slow.start <= time < slow.stop:
                factor *= slow.factor if slow.affects(source, dest, ()) else 1.0
        return factor

    def take_link(self, link: int, nbytes: int, time: float) -> tuple[float, float]:
        """Occupy a link once it is free.

        Return the time at which the head of the message leaves the link, and its β.
        """
        beta = self.beta[link]
        for slow in self.failures:
            if isinstance(slow, SlowLink) and slow.start <= time < slow.stop:
                beta *= slow.factor if slow.link == link else 1.0
        time = max(time, self.free[link])
        self.free[link] = time + nbytes * beta
        return time + self.alpha[link], beta
