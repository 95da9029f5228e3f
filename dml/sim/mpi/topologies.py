"""Virtual topologies: grids, graphs, and graphs known by their neighbours."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from dml.sim.mpi.constants import CONSTANTS, error
from dml.types import PROC_NULL


@dataclass(frozen=True)
class Cart:
    """A grid of ranks in C order."""

    dims: list[int]
    periods: list[bool]
    kind: ClassVar[int] = CONSTANTS["CART"]

    def coords(self, rank: int) -> list[int]:
        found = []
        for side in reversed(self.dims):
            rank, place = divmod(rank, side)
            found.append(place)
        return found[::-1]

    def rank(self, coords: Sequence[int]) -> int:
        """Return the rank at coordinates; PROC_NULL outside."""
        rank = 0
        for place, side, periodic in zip(coords, self.dims, self.periods, strict=True):
            if periodic:
                place %= side
            if not 0 <= place < side:
                return PROC_NULL
            rank = rank * side + place
        return rank

    def shift(self, rank: int, axis: int, step: int) -> tuple[int, int]:
        """Return the source and the destination of a shift along an axis."""
        if not 0 <= axis < len(self.dims):
            raise error(
                "ERR_DIMS",
                f"Cartcomm.Shift: expected a direction below {len(self.dims)}, got "
                f"{axis}",
            )
        coords = self.coords(rank)
        ends = []
        for sign in (-1, 1):
            moved = [*coords]
            moved[axis] += sign * step
            ends.append(self.rank(moved))
        return ends[0], ends[1]

    def edges(self, rank: int) -> tuple[list[int], list[int]]:
        """Return the sources and the destinations: by axis, first downwards."""
        found: list[int] = []
        for axis in range(len(self.dims)):
            found += self.shift(rank, axis, 1)
        return found, found

    def tags(self) -> tuple[list[int], list[int]]:
        """Return tags of receives and sends: a message goes up or down an axis.

        Both neighbours of an axis may be one rank.
        """
        places = range(2 * len(self.dims))
        return [k ^ 1 for k in places], [*places]


@dataclass(frozen=True)
class Graph:
    """A graph of which every rank knows all edges; `index` is cumulated."""

    index: list[int]
    edges_: list[int]
    kind: ClassVar[int] = CONSTANTS["GRAPH"]

    def neighbors(self, rank: int) -> list[int]:
        if not 0 <= rank < len(self.index):
            raise error(
                "ERR_RANK",
                f"Graphcomm: expected a rank below {len(self.index)}, got {rank}",
            )
        first = self.index[rank - 1] if rank else 0
        return self.edges_[first : self.index[rank]]

    def edges(self, rank: int) -> tuple[list[int], list[int]]:
        found = self.neighbors(rank)
        return found, found

    def tags(self) -> None:
        return None


@dataclass(frozen=True)
class DistGraph:
    """The neighbours of one rank, with weights or None."""

    sources: list[int]
    destinations: list[int]
    weights: tuple[list[int], list[int]] | None
    kind: ClassVar[int] = CONSTANTS["DIST_GRAPH"]

    def edges(self, rank: int) -> tuple[list[int], list[int]]:
        return self.sources, self.destinations

    def tags(self) -> None:
        return None


def cart(size: int, dims: Sequence[int], periods: Any) -> Cart:
    """Return a grid of at most `size` ranks, after a check."""
    given = [dims] if isinstance(dims, int) else dims
    sides = [int(side) for side in given]
    if periods is None or isinstance(periods, bool | int):
        periods = [bool(periods)] * len(sides)
    flags = [bool(flag) for flag in periods]
    if len(flags) != len(sides):
        raise ValueError(
            f"Create_cart: expected {len(sides)} periods, got {len(flags)}"
        )
    if any(side < 1 for side in sides) or prod(sides) > size:
        raise error(
            "ERR_DIMS",
            f"Create_cart: expected a grid of at most {size} ranks, got {sides}",
        )
    return Cart(sides, flags)


def graph(size: int, index: Sequence[int], edges: Sequence[int]) -> Graph:
    ends, heads = [int(end) for end in index], [int(head) for head in edges]
    if ends and ends[0] == 0 and ends[-1] == len(heads) and len(ends) > 1:
        ends = ends[1:]
    if len(ends) > size or (ends[-1] if ends else 0) != len(heads):
        raise error(
            "ERR_TOPOLOGY",
            f"Create_graph: expected at most {size} nodes with {len(heads)} edges, got "
            f"the index {ends}",
        )
    return Graph(ends, heads)


def compute_dims(nnodes: int, dims: int | Sequence[int]) -> list[int]:
    """Return nearly equal sides of a grid of `nnodes`; those that are not 0 are kept.

    The free sides are in decreasing order.
    """
    sides = [0] * dims if isinstance(dims, int) else [int(side) for side in dims]
    fixed = prod(side for side in sides if side)
    if any(side < 0 for side in sides) or nnodes < 1 or nnodes % max(fixed, 1):
        raise error(
            "ERR_DIMS",
            f"Compute_dims: expected sides that divide {nnodes} nodes, got {sides}",
        )
    free = sides.count(0)
    if not free:
        if fixed != nnodes:
            raise error(
                "ERR_DIMS", f"Compute_dims: expected {nnodes} nodes, got {sides}"
            )
        return sides
    found = balanced(nnodes // fixed, free)
    return [side or found.pop(0) for side in sides]


def balanced(number: int, parts: int) -> list[int]:
    """Return factors of a number, in decreasing order, with the least largest one."""
    if parts == 1:
        return [number]
    root = round(number ** (1 / parts))
    least = next(
        side
        for side in range(max(root - 1, 1), number + 1)
        if side**parts >= number and not number % side
    )
    options = []
    for side in range(least, number + 1):
        if not number % side:
            rest = balanced(number // side, parts - 1)
            if rest[0] <= side:
                options.append([side, *rest])
                break
    return options[0]
