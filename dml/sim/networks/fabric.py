"""The interface of virtual networks: routes, links, rates and hardware cost.

A departing message of m bytes occupies its sender's out port for α + mβ seconds.
It crosses its links in order, cut through: its head waits while a link is occupied by
earlier messages. It occupies the link for m times the β of the link, and proceeds after
the α of the link. The message then occupies its receiver's in port for α + mβ, where β
is the largest β of the port and of its links.
"""

from typing import NamedTuple, Protocol

import numpy as np

from dml.types import BadInput


class Paths(NamedTuple):
    """Routes of n messages: the rates of their ports, and their links."""

    alpha: np.ndarray  # port seconds per message, n
    beta: np.ndarray  # port seconds per byte, n
    starts: np.ndarray  # int64, n + 1: message k crosses links[starts[k]:starts[k + 1]]
    links: np.ndarray  # int32, in order of crossing


class Links(NamedTuple):
    """Rates of all links of a network; a link has one direction."""

    alpha: np.ndarray  # seconds until the head has left
    beta: np.ndarray  # seconds per byte


class Rates(NamedTuple):
    """Times of ports, links and reductions."""

    alpha: float = 1e-6  # seconds per message
    beta: float = 1e-9  # seconds per byte through a port
    gamma: float = 1e-10  # seconds per reduced byte
    eager: int = 65536  # bytes up to which a Send returns before its receive is posted
    hop: float = 1e-7  # seconds per link for the head of a message
    link: float = 1e-9  # seconds per byte through a link


class Report(NamedTuple):
    """Hardware of a network; links are cables, which carry both directions."""

    routers: int
    links: int  # between routers
    diameter: int  # hops between routers
    bisection: int  # links that join two halves
    cost: float  # in the currency of Prices


class Prices(NamedTuple):
    """Prices of router ports and cables, in any currency."""

    port: float = 350.0  # a port of a router
    short: float = 50.0  # a cable inside a rack or group
    long: float = 300.0  # an optical cable between racks or groups

    def cost(self, ports: int, short: int, long: int) -> float:
        """Return the price of ports (including those to ranks) and cables."""
        return ports * self.port + short * self.short + long * self.long


class Network(Protocol):
    """A network; `Uniform` is the only network without links."""

    @property
    def rates(self) -> Rates: ...

    @property
    def capacity(self) -> int:
        """Return the largest number of ranks."""
        ...

    def links(self) -> Links: ...

    def paths(self, source: np.ndarray, dest: np.ndarray) -> Paths:
        """Return the minimal routes from source ranks to dest ranks."""
        ...

    def at(self, rank: np.ndarray) -> np.ndarray:
        """Return the router of each rank."""
        ...

    def ends(self) -> np.ndarray:
        """Return the two routers of every link, links x 2: tail and head."""
        ...

    def hosts(self, size: int) -> list[int]:
        """Return the host of each of the first `size` ranks."""
        ...

    def report(self, prices: Prices) -> Report: ...


def fits(network: Network, size: int) -> None:
    """Raise `BadInput` if `size` ranks exceed the capacity of the network."""
    if not 0 < size <= network.capacity:
        raise BadInput(
            f"expected 1 to {network.capacity} ranks on {network}, got {size}; "
            "pass a larger network or fewer ranks"
        )


def along(rates: Rates, grid: np.ndarray) -> Paths:
    """Return paths from an array messages x hops of links in order, -1 for no link."""
    used = grid >= 0
    starts = np.zeros(len(grid) + 1, np.int64)
    np.cumsum(used.sum(1), out=starts[1:])
    return routes(rates, starts, grid[used].astype(np.int32, copy=False))


def routes(rates: Rates, starts: np.ndarray, links: np.ndarray) -> Paths:
    """Return paths whose ports all have equal rates."""
    messages = len(starts) - 1
    alpha, beta = np.full(messages, rates.alpha), np.full(messages, rates.beta)
    return Paths(alpha, beta, starts, links)


def equal_links(rates: Rates, number: int) -> Links:
    """Return `number` links of equal rates."""
    return Links(np.full(number, rates.hop), np.full(number, rates.link))
