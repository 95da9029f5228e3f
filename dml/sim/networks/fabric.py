"""What every virtual network tells: the way of a message, its links, what it costs.

A message of m bytes that departs at t crosses its links in order, cut through: its head
waits for a link that is busy with those that came to it before, holds it for m link
betas, and goes on after the link's alpha. It then holds its receiver's in port for
α + mβ, where β is that of the narrowest place on its way; its sender's out port it has
held for α + mβ of the port from t on.
"""

from typing import NamedTuple, Protocol

import numpy as np

from dml.types import BadInput


class Paths(NamedTuple):
    """The ways of n messages: what their ports take, and which links they cross."""

    alpha: np.ndarray  # seconds a message, of each
    beta: np.ndarray  # seconds a byte, of each: of the ports
    starts: np.ndarray  # int64, n + 1: message k crosses links[starts[k]:starts[k + 1]]
    links: np.ndarray  # int32, in the order in which they are crossed


class Links(NamedTuple):
    """All links of a network, each in one direction."""

    alpha: np.ndarray  # seconds until the head is through
    beta: np.ndarray  # seconds a byte


class Rates(NamedTuple):
    """What ports, links and reducing take."""

    alpha: float = 1e-6  # seconds a message
    beta: float = 1e-9  # seconds a byte through a port
    gamma: float = 1e-10  # seconds a reduced byte
    eager: int = 65536  # bytes up to which a Send returns before its receive is posted
    hop: float = 1e-7  # seconds that a link takes to pass a message's head
    link: float = 1e-9  # seconds a byte through a link


class Report(NamedTuple):
    """What a network is made of; links are cables, which carry both directions."""

    routers: int
    links: int  # between routers
    diameter: int  # hops between routers
    bisection: int  # links that join two halves
    cost: float  # by Prices


class Prices(NamedTuple):
    """A simple price model: a router by its ports, a cable by its reach."""

    port: float = 350.0  # of a router
    short: float = 50.0  # a cable inside a rack or group
    long: float = 300.0  # an optical one between them

    def cost(self, ports: int, short: int, long: int) -> float:
        """Add up ports of routers, those to ranks too, and cables by their reach."""
        return ports * self.port + short * self.short + long * self.long


class Network(Protocol):
    """A network that has links; Uniform is the one that has none."""

    @property
    def rates(self) -> Rates: ...

    @property
    def capacity(self) -> int:
        """How many ranks it holds."""
        ...

    def links(self) -> Links: ...

    def paths(self, source: np.ndarray, dest: np.ndarray) -> Paths:
        """Say how messages go from ranks to ranks, by minimal routing."""
        ...

    def at(self, rank: np.ndarray) -> np.ndarray:
        """The router of each of these ranks."""
        ...

    def ends(self) -> np.ndarray:
        """The two routers of every link, links x 2: from which and to which."""
        ...

    def hosts(self, size: int) -> list[int]:
        """The host of each of the first `size` ranks."""
        ...

    def report(self, prices: Prices) -> Report: ...


def fits(network: Network, size: int) -> None:
    """Raise where a network does not hold so many ranks."""
    if not 0 < size <= network.capacity:
        raise BadInput(
            f"expected 1 to {network.capacity} ranks on {network}, got {size}; "
            "pass a larger network or fewer ranks"
        )


def along(rates: Rates, grid: np.ndarray) -> Paths:
    """Take a grid of messages x hops to paths: links in order, -1 where none is."""
    there = grid >= 0
    starts = np.zeros(len(grid) + 1, np.int64)
    np.cumsum(there.sum(1), out=starts[1:])
    return ways(rates, starts, grid[there].astype(np.int32, copy=False))


def ways(rates: Rates, starts: np.ndarray, links: np.ndarray) -> Paths:
    """Paths whose ports are all alike."""
    messages = len(starts) - 1
    alpha, beta = np.full(messages, rates.alpha), np.full(messages, rates.beta)
    return Paths(alpha, beta, starts, links)


def alike(rates: Rates, number: int) -> Links:
    """So many links, all alike."""
    return Links(np.full(number, rates.hop), np.full(number, rates.link))
