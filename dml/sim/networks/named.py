"""The table of virtual networks by name.

`network` parses text such as torus:16x16. A name without a shape selects the smallest
network that holds all ranks. A suffix @α,β,γ sets the rates of ports, of links (hop
α/10, β) and of the memory of a host (α/5, β/10). The text α,β,γ is a uniform network.
"""

import re
from collections.abc import Callable
from itertools import count
from math import ceil, inf

from dml.sim.networks.dragonfly import Dragonfly
from dml.sim.networks.fabric import Network, Rates, fits
from dml.sim.networks.fat_tree import FatTree
from dml.sim.networks.graph import Graph, read
from dml.sim.networks.hosts import Hosts
from dml.sim.networks.slim_fly import ORDERS, SlimFly
from dml.sim.networks.torus import Torus
from dml.sim.networks.uniform import Uniform
from dml.types import BadInput

MAX_RANKS = 1 << 24
RANKS_PER_HOST = 8  # default of hosts


def network(text: str, size: int) -> Network | Uniform:
    """Build a network for `size` ranks from text such as torus:16x16."""
    if size < 1:
        raise BadInput(f"expected at least 1 rank, got {size}; pass more")
    body, at, tail = text.rpartition("@") if "@" in text else (text, "", "")
    if body[:1] and body[0] in "0123456789.+-":
        body = f"uniform:{body}"  # α,β,γ alone
    name, colon, shape = body.partition(":")
    if name not in NETWORKS or (colon and not shape):
        known = ", ".join(form for form, _ in NETWORKS.values())
        raise BadInput(f"expected a network, got {text!r}; pass one of {known}")
    form, build = NETWORKS[name]
    try:
        rates = parse_rates(tail) if at else Rates()
        made = build(shape, size, rates)
    except BadInput:
        raise
    except ValueError as error:
        raise BadInput(
            f"expected {form}, got {text!r}: {error}; pass --network={form}"
        ) from None
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


def parse_rates(text: str) -> Rates:
    """Parse α,β,γ into rates: links have the β of ports, a hop takes α/10."""
    seconds = [float(word) for word in text.split(",")]
    if len(seconds) != 3 or not all(0 <= value < inf for value in seconds):
        raise ValueError("α,β,γ are three numbers of seconds, each 0 or more")
    alpha, beta, gamma = seconds
    return Rates(alpha, beta, gamma, hop=alpha / 10, link=beta)


def sides(text: str, most: int) -> list[int]:
    """Parse text such as 4x4x2 into up to `most` numbers."""
    words = text.split("x")
    if len(words) > most or not all(
        w.isdecimal() and 0 < int(w) < MAX_RANKS for w in words
    ):
        raise ValueError(f"a shape is up to {most} positive integers, separated by x")
    return [int(word) for word in words]


def uniform(shape: str, size: int, rates: Rates) -> Uniform:
    if shape and rates != Rates():
        raise ValueError("the text has rates before and after @")
    return Uniform(*(parse_rates(shape) if shape else rates)[:3])


def hosts(shape: str, size: int, rates: Rates) -> Hosts:
    number, ranks = ceil(size / RANKS_PER_HOST), RANKS_PER_HOST
    if shape:
        number, ranks = sides(shape, 2)
    return Hosts(number, ranks, rates, inside=(rates.alpha / 5, rates.beta / 10))


def ring(shape: str, size: int, rates: Rates) -> Torus:
    return Torus(tuple(sides(shape, 1)) if shape else (size,), rates)


def torus(shape: str, size: int, rates: Rates) -> Torus:
    """Build a torus; without a shape, its sides are a ≤ b ≤ c ≤ 2a.

    Of these the sides with the fewest ranks are taken, then those of the least sum.
    """
    if shape:
        return Torus(tuple(sides(shape, 8)), rates)
    shapes = []
    for a in range(1, ceil(size ** (1 / 3)) + 1):
        for b in range(a, 2 * a + 1):
            c = max(b, -(-size // (a * b)))
            if c <= 2 * a:
                shapes.append((a * b * c, a + b + c, (a, b, c)))
    return Torus(min(shapes)[-1], rates)


def fat_tree(shape: str, size: int, rates: Rates) -> FatTree:
    if not shape:
        return next(t for k in count(2, 2) if (t := FatTree(k, rates)).capacity >= size)
    (k,) = sides(shape, 1)
    if k % 2:
        raise ValueError("k must be even")
    return FatTree(k, rates)


def dragonfly(shape: str, size: int, rates: Rates) -> Dragonfly:
    if shape:
        return Dragonfly(sides(shape, 1)[0], rates)
    return next(d for h in count(1) if (d := Dragonfly(h, rates)).capacity >= size)


def slim_fly(shape: str, size: int, rates: Rates) -> SlimFly:
    if shape:
        q, ranks = (*sides(shape, 2), 0)[:2]
        return SlimFly(q, ranks, rates)
    sizes = [SlimFly(q, rates=rates) for q in ORDERS]
    return next((s for s in sizes if s.capacity >= size), sizes[-1])


def graph(shape: str, size: int, rates: Rates) -> Graph:
    path, comma, ranks = shape.rpartition(",")
    if comma and ranks.isdecimal():
        return read(path, rates, sides(ranks, 1)[0])
    return read(shape, rates)


Build = Callable[[str, int, Rates], Network | Uniform]

NETWORKS: dict[str, tuple[str, Build]] = {  # form of the text, and factory
    "uniform": ("uniform:α,β,γ", uniform),
    "hosts": ("hosts:HOSTSxRANKS", hosts),
    "ring": ("ring:RANKS", ring),
    "torus": ("torus:AxBx...", torus),
    "fat_tree": ("fat_tree:K", fat_tree),
    "dragonfly": ("dragonfly:H", dragonfly),
    "slim_fly": ("slim_fly:Q or QxRANKS", slim_fly),
    "graph": ("graph:FILE or FILE,RANKS", graph),
}
