"""Slim Fly, a network of diameter 2 (Besta & Hoefler 2014; McKay et al. 1998).

    (0, x, y) ---- y = m·x + c ---- (1, m, c)      x, y, m, c of the field of q
        |                               |
    (0, x, y')  y - y' in X         (1, m, c')  c - c' in X'

q = 4w + d, d in -1, 0, 1, a prime power: 2q² routers of k' = (3q - d)/2 cables each and
⌈k'/2⌉ ranks; Moore's bound is 1 + k'², an eighth more (Besta & Hoefler 2014). X is
ξ⁰, ξ², ... and X' is ξ¹, ξ³, ... for a primitive element ξ; for d = -1 half of each and
its negatives (Hafner 2004). Messages take routes from tables. The bisection is found by
a search, so it is an upper bound.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dml.sim.networks.fabric import Links, Paths, Prices, Rates, Report, equal_links
from dml.sim.networks.gf import field, prime_power
from dml.sim.networks.tables import LinkTable, route, table
from dml.types import BadInput

MAX_ORDER = 49  # 177 674 ranks
ORDERS = [q for q in range(3, MAX_ORDER + 1) if q % 4 != 2 and prime_power(q)[0]]


class SlimFly(NamedTuple):
    """Slim Fly of order q; links are sorted by router, then by neighbour.

    Router (s, x, y) has number (s·q + x)·q + y.
    """

    q: int
    concentration: int = 0  # ranks per router; 0: ⌈k'/2⌉, full bandwidth
    rates: Rates = Rates()

    @property
    def degree(self) -> int:
        """Return k', the number of cables from a router to other routers."""
        d = (check(self.q) + 1) % 4 - 1
        return (3 * self.q - d) // 2

    @property
    def load(self) -> int:
        """Return the number of ranks per router."""
        return self.concentration or -(-self.degree // 2)

    @property
    def capacity(self) -> int:
        return 2 * self.q**2 * self.load

    def links(self) -> Links:
        return equal_links(self.rates, len(mms(self.q).ends))

    def ends(self) -> np.ndarray:
        return mms(self.q).ends

    def at(self, rank: np.ndarray) -> np.ndarray:
        return np.asarray(rank) // self.load

    def paths(self, source: np.ndarray, dest: np.ndarray) -> Paths:
        dest = np.asarray(dest)
        return route(mms(self.q), self.rates, self.at(source), self.at(dest), dest)

    def hosts(self, size: int) -> list[int]:
        return list(range(size))

    def report(self, prices: Prices) -> Report:
        """Return the hardware; cables inside a rack are short, other cables long.

        A rack has the columns (0, x) and (1, x).
        """
        from dml.sim.networks.bisection import bisection  # with numba

        graph, routers, q = mms(self.q), 2 * self.q**2, self.q
        tail, head = graph.ends.T // q % q
        inside = int((tail == head).sum()) // 2
        cables = len(graph.ends) // 2
        return Report(
            routers=routers,
            links=cables,
            diameter=int(graph.far.max()),
            bisection=bisection(graph),
            cost=prices.cost(
                routers * (self.degree + self.load),
                short=inside + self.capacity,
                long=cables - inside,
            ),
        )


def check(q: int) -> int:
    """Return q; raise `BadInput` if there is no graph of order q."""
    if q not in ORDERS:
        near = sorted(sorted(ORDERS, key=lambda order: abs(order - q))[:4])
        raise BadInput(
            "expected a prime power q = 4w - 1, 4w or 4w + 1 from "
            f"{ORDERS[0]} to {ORDERS[-1]} for Slim Fly, got q={q}; "
            f"the nearest are {', '.join(map(str, near))}"
        )
    return q


@lru_cache(8)
def mms(q: int) -> LinkTable:
    """Build the graph of McKay, Miller and Širáň (MMS) of order q."""
    elements, (powers, plus, times) = np.arange(check(q)), field(q)
    if q % 4 == 3:
        w = (q + 1) // 4
        odd = np.r_[1 : 2 * w : 2, 2 * w : q : 2] % (q - 1)
        even = np.r_[0 : 2 * w : 2, 2 * w - 1 : q - 1 : 2]
    else:
        even, odd = np.r_[0 : q - 1 : 2], np.r_[1:q:2] % (q - 1)
    cables = []
    for side, chosen in enumerate((even, odd)):
        x, y, step = np.meshgrid(elements, elements, powers[chosen], indexing="ij")
        column = (side * q + x) * q
        cables.append(np.stack([column + y, column + plus[y, step]], -1).reshape(-1, 2))
    x, m, c = np.meshgrid(elements, elements, elements, indexing="ij")
    y = plus[times[m, x], c]
    cables.append(np.stack([x * q + y, (q + m) * q + c], -1).reshape(-1, 2))
    pairs = np.unique(np.sort(np.concatenate(cables), axis=1), axis=0)
    graph = table(pairs, 2 * q * q)
    assert graph.far.max() == 2 and set(np.diff(graph.first)) == {SlimFly(q).degree}
    return graph
