"""Any graph, from a file of cables: two routers and an optional factor per line.

    # a square with a diagonal            0 --- 1
    0 1                                   |  \\  |
    1 2                                   |   \\ |
    2 3                                   3 --- 2
    0 3
    0 2 4          # this cable has 4 times the bandwidth: β / 4, both ways
    ranks 0 2      # only these routers have ranks; without such a line all have ranks

Routers have numbers from 0, with or without gaps. Each router with ranks has
`concentration` consecutive ranks. Messages take minimal routes from tables. The
bisection is found by a search, so it is an upper bound.
"""

from math import inf
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np

from dml.sim.networks.fabric import Links, Paths, Prices, Rates, Report
from dml.sim.networks.tables import LinkTable, route, table
from dml.types import BadInput

RATES = Rates()


class Graph(NamedTuple):
    """A graph from a file; its links are sorted by router, then by neighbour."""

    table: LinkTable
    factors: tuple[float, ...]  # relative bandwidth of each link
    seats: tuple[int, ...]  # the routers with ranks
    concentration: int = 1  # ranks per router with ranks
    rates: Rates = RATES

    def __repr__(self) -> str:
        routers, cables = len(self.table.far), len(self.table.ends) // 2
        return f"Graph({routers=}, {cables=}, concentration={self.concentration})"

    @property
    def capacity(self) -> int:
        return len(self.seats) * self.concentration

    def links(self) -> Links:
        factors = np.array(self.factors)
        return Links(np.full(len(factors), self.rates.hop), self.rates.link / factors)

    def ends(self) -> np.ndarray:
        return self.table.ends

    def at(self, rank: np.ndarray) -> np.ndarray:
        return np.array(self.seats)[np.asarray(rank) // self.concentration]

    def paths(self, source: np.ndarray, dest: np.ndarray) -> Paths:
        dest = np.asarray(dest)
        return route(self.table, self.rates, self.at(source), self.at(dest), dest)

    def hosts(self, size: int) -> list[int]:
        return list(range(size))

    def report(self, prices: Prices) -> Report:
        """Return the hardware; all cables have the price of long cables."""
        from dml.sim.networks.bisection import bisection  # with numba

        cables = len(self.table.ends) // 2
        return Report(
            routers=len(self.table.far),
            links=cables,
            diameter=int(self.table.far.max()),
            bisection=bisection(self.table),
            cost=prices.cost(
                2 * cables + self.capacity, short=self.capacity, long=cables
            ),
        )


def read(path: str | Path, rates: Rates = RATES, concentration: int = 1) -> Graph:
    """Read a graph from a file with `concentration` ranks per router."""
    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"expected a file of cables, got {path}: {error}; pass a file with "
            "two routers per line"
        ) from None
    cables: dict[tuple[int, int], tuple[float, int]] = {}
    seats: dict[int, int] = {}  # line number by router
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if words[:1] == ["ranks"]:
            seats.update(
                (router, number) for router in numbers(words[1:], path, number)
            )
        elif words:
            pair, factor = cable(words, path, number)
            if pair in cables:
                wrong(path, number, "each cable once", f"{line} again")
            cables[pair] = factor, number
    if not cables:
        wrong(path, len(lines) or 1, "at least one cable", "none")
    return build(path, cables, seats, concentration, rates)


def build(
    path: str | Path,
    cables: dict[tuple[int, int], tuple[float, int]],
    seats: dict[int, int],
    concentration: int,
    rates: Rates,
) -> Graph:
    """Number the routers, and check that all ranks reach each other."""
    pairs = np.array(sorted(cables))
    names = np.unique(pairs)
    graph = table(np.searchsorted(names, pairs), len(names))
    lines = seats or {a: n for pair, (_, n) in reversed(cables.items()) for a in pair}
    for name, number in lines.items():
        if name not in names:
            wrong(path, number, "ranks at routers with cables", f"router {name}")
    seated = np.searchsorted(names, sorted(lines))
    unreachable = seated[graph.far[seated[0], seated] < 0]
    if len(unreachable):
        name = int(names[unreachable[0]])
        problem = f"router {name} without a route to router {names[seated[0]]}"
        wrong(path, lines[name], "ranks that all reach each other", problem)
    ends = np.sort(names[graph.ends], axis=1).tolist()
    factors = tuple(cables[a, b][0] for a, b in ends)
    return Graph(graph, factors, tuple(seated.tolist()), concentration, rates)


def cable(
    words: list[str], path: str | Path, number: int
) -> tuple[tuple[int, int], float]:
    """Parse the routers and the factor of a line."""
    routers = numbers(words[:2], path, number)
    try:
        factor = float(words[2]) if len(words) == 3 else 1.0
    except ValueError:
        factor = inf
    if len(words) not in (2, 3) or routers[0] == routers[1] or not 0 < factor < inf:
        wrong(path, number, "two routers and a factor above 0", " ".join(words))
    return (min(routers), max(routers)), factor


def numbers(words: list[str], path: str | Path, number: int) -> list[int]:
    """Parse the numbers of routers."""
    if not words or not all(word.isdecimal() and len(word) < 10 for word in words):
        wrong(path, number, "numbers of routers, 0 or more", " ".join(words) or "none")
    return [int(word) for word in words]


def wrong(path: str | Path, number: int, expected: str, got: str) -> NoReturn:
    raise BadInput(
        f"{path}, line {number}: expected {expected}, got {got}; "
        "write a line such as 0 1, or 0 1 FACTOR, for each cable"
    )
