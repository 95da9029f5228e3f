"""The table of virtual networks by name.

A text such as torus:16x16 comes in, a network goes out. A name alone is the smallest
that holds all ranks; @α,β,γ at its end are rates: of ports, and from them of links
(hop α/10, β) and of memory (α/5, β/10). α,β,γ alone is uniform.
"""

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

MOST = 1 << 24  # ranks
A_HOST = 8  # ranks, where nothing else is said


def network(text: str, size: int) -> Network | Uniform:
    """Build the network that a text tells, for `size` ranks."""
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
        rates = three(tail) if at else Rates()
        made = build(shape, size, rates)
    except BadInput:
        raise
    except ValueError as error:
        raise BadInput(
            f"expected {form}, got {text!r}: {error}; pass --network={form}"
        ) from None
    if not isinstance(made, Uniform):
        fits(made, size)
        if made.capacity > MOST:
            raise BadInput(
                f"expected at most {MOST} ranks, got {text!r}, which holds "
                f"{made.capacity}; pass a smaller network"
            )
    return made


def three(text: str) -> Rates:
    """Return rates of α,β,γ: links are as ports, a hop takes a tenth of a message."""
    numbers = [float(word) for word in text.split(",")]
    if len(numbers) != 3 or not all(0 <= number < inf for number in numbers):
        raise ValueError("α,β,γ are three seconds, none below 0")
    alpha, beta, gamma = numbers
    return Rates(alpha, beta, gamma, hop=alpha / 10, link=beta)


def whole(text: str, most: int) -> list[int]:
    """Return the numbers of AxBxC."""
    words = text.split("x")
    if len(words) > most or not all(w.isdecimal() and 0 < int(w) < MOST for w in words):
        raise ValueError(f"a shape is up to {most} numbers from 1 on, with x between")
    return [int(word) for word in words]


def uniform(shape: str, size: int, rates: Rates) -> Uniform:
    if shape and rates != Rates():
        raise ValueError("it has rates before and after @")
    return Uniform(*(three(shape) if shape else rates)[:3])


def hosts(shape: str, size: int, rates: Rates) -> Hosts:
    number, each = whole(shape, 2) if shape else (ceil(size / A_HOST), A_HOST)
    return Hosts(number, each, rates, inside=(rates.alpha / 5, rates.beta / 10))


def ring(shape: str, size: int, rates: Rates) -> Torus:
    return Torus(tuple(whole(shape, 1)) if shape else (size,), rates)


def torus(shape: str, size: int, rates: Rates) -> Torus:
    """Alone: three sides a ≤ b ≤ c ≤ 2a with the fewest ranks, then the shortest."""
    if shape:
        return Torus(tuple(whole(shape, 8)), rates)
    found = []
    for a in range(1, ceil(size ** (1 / 3)) + 1):
        for b in range(a, 2 * a + 1):
            c = max(b, -(-size // (a * b)))
            if c <= 2 * a:
                found.append((a * b * c, a + b + c, (a, b, c)))
    return Torus(min(found)[-1], rates)


def fat_tree(shape: str, size: int, rates: Rates) -> FatTree:
    if not shape:
        return next(t for k in count(2, 2) if (t := FatTree(k, rates)).capacity >= size)
    (k,) = whole(shape, 1)
    if k % 2:
        raise ValueError("k is even")
    return FatTree(k, rates)


def dragonfly(shape: str, size: int, rates: Rates) -> Dragonfly:
    if shape:
        return Dragonfly(whole(shape, 1)[0], rates)
    return next(d for h in count(1) if (d := Dragonfly(h, rates)).capacity >= size)


def slim_fly(shape: str, size: int, rates: Rates) -> SlimFly:
    if shape:
        q, ranks = (*whole(shape, 2), 0)[:2]
        return SlimFly(q, ranks, rates)
    all_of_them = [SlimFly(q, rates=rates) for q in ORDERS]
    return next((s for s in all_of_them if s.capacity >= size), all_of_them[-1])


def graph(shape: str, size: int, rates: Rates) -> Graph:
    path, comma, ranks = shape.rpartition(",")
    if comma and ranks.isdecimal():
        return read(path, rates, whole(ranks, 1)[0])
    return read(shape, rates)


Build = Callable[[str, int, Rates], Network | Uniform]

NETWORKS: dict[str, tuple[str, Build]] = {  # the form of its text, and what builds it
    "uniform": ("uniform:α,β,γ", uniform),
    "hosts": ("hosts:HOSTSxRANKS", hosts),
    "ring": ("ring:RANKS", ring),
    "torus": ("torus:AxBx...", torus),
    "fat_tree": ("fat_tree:K", fat_tree),
    "dragonfly": ("dragonfly:H", dragonfly),
    "slim_fly": ("slim_fly:Q or QxRANKS", slim_fly),
    "graph": ("graph:FILE or FILE,RANKS", graph),
}
