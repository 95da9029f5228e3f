"""Topologies of averaging by name: graphs of gossip, groups, and Moshpit's grid.

`topology` parses text such as ring, torus:8x8, grid:32x32 or random_groups:32.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np

from dml.types import BadInput, spec
from dml.wire.plans.averaging import grouping
from dml.wire.plans.averaging.grouping import Groups
from dml.wire.plans.averaging.links import (
    MAX_SIZE,
    Side,
    branches,
    exponential,
    hypercube,
    one_peer_exponential,
    ring,
    torus,
)
from dml.wire.plans.averaging.mixing import NO_RANK, Link, Topology


def complete(*, name: str, size: int, seed: int) -> Topology:
    """All ranks, with weight 1/p: exact after one round."""
    groups = grouping.by_label(np.zeros(size, np.int64), 1)
    made = grouped(name, size, 1, lambda t: groups)
    return made._replace(spectrum=lambda t: (np.arange(size) == 0).astype(float))


def random_groups(ranks: Side, *, name: str, size: int, seed: int) -> Topology:
    """Random groups of equal size, new ones in each round."""
    return grouped(
        name, size, 0, lambda t: grouping.random_groups(size, ranks, seed, t)
    )


def independent_groups(groups: Side, *, name: str, size: int, seed: int) -> Topology:
    """Random groups that each rank chooses from a number of groups, in each round."""
    return grouped(
        name, size, 0, lambda t: grouping.independent_groups(size, groups, seed, t)
    )


def grid(side: Side, *others: Side, name: str, size: int, seed: int) -> Topology:
    """The lines of a grid, along one axis after another (Moshpit, Ryabinin 2021)."""
    sides = (side, *others)
    if math.prod(sides) < size:
        raise BadInput(
            f"expected a grid with at least {size} seats, got {name}; pass larger sides"
        )
    period = len(sides)
    return grouped(
        name,
        size,
        period,
        lambda t: grouping.grid_lines(size, sides, seed, t % period),
    )


def grouped(
    name: str, size: int, period: int, groups: Callable[[int], Groups]
) -> Topology:
    """Return a topology of groups; link k joins ranks k places apart in a group."""

    def links(t: int) -> list[Link]:
        now = groups(t)
        sizes = now.sizes()
        place = np.empty(size, np.int64)
        place[now.order] = np.arange(size) - np.repeat(now.starts[:-1], sizes)

        def partner(ranks: np.ndarray, by: int) -> np.ndarray:
            label = now.label[ranks]
            width = sizes[label]
            partners = now.order[now.starts[label] + (place[ranks] + by) % width]
            return np.where(abs(by) < width, partners, NO_RANK)

        def weight(ranks: np.ndarray) -> np.ndarray:
            return 1 / sizes[now.label[ranks]]

        return [
            Link(partial(partner, by=-k), partial(partner, by=k), weight)
            for k in range(1, int(sizes.max()))
        ]

    return Topology(name, size, period, links, groups)


TOPOLOGIES: dict[str, Callable[..., Topology]] = {
    "ring": ring,
    "torus": torus,
    "exponential": exponential,
    "one_peer_exponential": one_peer_exponential,
    "hypercube": hypercube,
    "complete": complete,
    "random_groups": random_groups,
    "independent_groups": independent_groups,
    "grid": grid,
    "tree": branches,
    "chain": branches,
    "star": branches,
}


@lru_cache(maxsize=64)
def topology(text: str, size: int, seed: int = 0) -> Topology:
    """Return a topology; equal arguments give the same object.

    Args:
      text: Name, with a shape after a colon if the name needs one.
      size: Number of ranks.
      seed: Random seed of groups and of seats in a grid.
    """
    if not 1 <= size <= MAX_SIZE:
        raise BadInput(f"expected 1 to {MAX_SIZE} ranks, got {size}; change the number")
    made: Topology = spec.call(
        text, TOPOLOGIES, "a topology", name=text, size=size, seed=seed
    )
    return made
