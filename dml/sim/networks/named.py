"""The table of virtual networks by name.

`network` parses text such as torus:16x16. A name without a shape selects the smallest
network that holds all ranks. A suffix @α,β,γ sets the rates of ports, of links (hop
α/10, β) and of the memory of a host (α/5, β/10). The text α,β,γ is a uniform network.
"""

import re
from collections.abc import Callable
from itertools import count
from math import ceil
from typing import Annotated

from dml.sim.networks.dragonfly import Dragonfly
from dml.sim.networks.fabric import Network, Rates, fits
from dml.sim.networks.fat_tree import FatTree
from dml.sim.networks.graph import Graph, read
from dml.sim.networks.hosts import Hosts
from dml.sim.networks.slim_fly import ORDERS, SlimFly
from dml.sim.networks.torus import Torus
from dml.sim.networks.uniform import Uniform
from dml.types import BadInput, spec
from dml.types.ranges import Number, Range

MAX_RANKS = 1 << 24
RANKS_PER_HOST = 8  # default of hosts
MAX_AXES = 8  # of a torus

Side = Annotated[int, Range(1, MAX_RANKS - 1)]


def network(text: str, size: int) -> Network | Uniform:
    """Build a network for `size` ranks from text such as torus:16x16."""
    if size < 1:
        raise BadInput(f"expected at least 1 rank, got {size}; pass more")
    body, at, tail = text.rpartition("@") if "@" in text else (text, "", "")
    if body[:1] and body[0] in "0123456789.+-":
        body = f"uniform:{body}"  # α,β,γ alone
    rates = spec.apply(tail, rates_of, "rates α,β,γ after @") if at else Rates()
    made: Network | Uniform = spec.call(
        body, NETWORKS, "a network", size=size, rates=rates
    )
    if not isinstance(made, Uniform):
        fits(made, size)
        if made.capacity > MAX_RANKS:
            raise BadInput(
                f"expected at most {MAX_RANKS} ranks, got {text!r}, which holds "
                f"{made.capacity}; pass a smaller network"
            )
    return made


def texts(several: str) -> list[str]:
    """Return the texts of several networks, each up to a semicolon or a comma and name.

    torus@1e-6,1e-9,0,ring:8;1e-6,1e-9,0 are a torus, a ring and a uniform network.
    """
    names = "|".join(NETWORKS)
    return re.split(rf";|,(?=(?:{names})(?:[:@,;]|$))", several)


def rates_of(alpha: Number, beta: Number, gamma: Number) -> Rates:
    """Return rates: links have the β of ports, a hop takes α/10."""
    return Rates(alpha, beta, gamma, hop=alpha / 10, link=beta)


def uniform(*seconds: Number, size: int, rates: Rates) -> Uniform:
    if seconds and rates != Rates():
        raise ValueError("the text has rates before and after @")
    if len(seconds) not in (0, 3):
        raise ValueError("α,β,γ are three numbers")
    alpha, beta, gamma = seconds or rates[:3]
    return Uniform(alpha, beta, gamma)


def hosts(
    hosts: Side | None = None, ranks: Side | None = None, *, size: int, rates: Rates
) -> Hosts:
    if hosts and not ranks:
        raise ValueError("HOSTSxRANKS are two numbers")
    number, each = hosts or ceil(size / RANKS_PER_HOST), ranks or RANKS_PER_HOST
    return Hosts(number, each, rates, inside=(rates.alpha / 5, rates.beta / 10))


def ring(ranks: Side | None = None, *, size: int, rates: Rates) -> Torus:
    return Torus((ranks or size,), rates)


def torus(*side: Side, size: int, rates: Rates) -> Torus:
    """Build a torus; without sides, they are a ≤ b ≤ c ≤ 2a.

    Of these the sides with the fewest ranks are taken, then those of the least sum.
    """
    if len(side) > MAX_AXES:
        raise ValueError(f"a torus has at most {MAX_AXES} sides")
    if side:
        return Torus(side, rates)
    shapes = []
    for a in range(1, ceil(size ** (1 / 3)) + 1):
        for b in range(a, 2 * a + 1):
            c = max(b, -(-size // (a * b)))
            if c <= 2 * a:
                shapes.append((a * b * c, a + b + c, (a, b, c)))
    return Torus(min(shapes)[-1], rates)


def fat_tree(k: Side | None = None, *, size: int, rates: Rates) -> FatTree:
    if k is None:
        return next(t for k in count(2, 2) if (t := FatTree(k, rates)).capacity >= size)
    if k % 2:
        raise ValueError("K must be even")
    return FatTree(k, rates)


def dragonfly(h: Side | None = None, *, size: int, rates: Rates) -> Dragonfly:
    if h:
        return Dragonfly(h, rates)
    return next(d for h in count(1) if (d := Dragonfly(h, rates)).capacity >= size)


def slim_fly(
    q: Side | None = None, ranks: Side = 0, *, size: int, rates: Rates
) -> SlimFly:
    if q:
        return SlimFly(q, ranks, rates)
    sizes = [SlimFly(q, rates=rates) for q in ORDERS]
    return next((s for s in sizes if s.capacity >= size), sizes[-1])


def graph(file: str, *, size: int, rates: Rates) -> Graph:
    """Read FILE, or FILE,RANKS: the file may have commas in its name."""
    path, _, ranks = file.rpartition(",")
    if path and ranks.isdecimal():
        if not 0 < int(ranks) < MAX_RANKS:
            raise ValueError("RANKS of FILE,RANKS is a positive number")
        return read(path, rates, int(ranks))
    return read(file, rates)


NETWORKS: dict[str, Callable[..., Network | Uniform]] = {
    "uniform": uniform,
    "hosts": hosts,
    "ring": ring,
    "torus": torus,
    "fat_tree": fat_tree,
    "dragonfly": dragonfly,
    "slim_fly": slim_fly,
    "graph": graph,
}
