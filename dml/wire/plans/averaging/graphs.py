"""Topologies of averaging by name: graphs of gossip, groups, and Moshpit's grid.

`topology` parses text such as ring, torus:8x8, grid:32x32 or random_groups:32.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np

from dml.types import BadInput
from dml.wire.plans.averaging import grouping
from dml.wire.plans.averaging.grouping import Groups
from dml.wire.plans.averaging.links import (
    MAX_SIZE,
    branches,
    exponential,
    hypercube,
    one_peer_exponential,
    ring,
    sides_of,
    torus,
)
from dml.wire.plans.averaging.mixing import NO_RANK, Link, Topology


def complete(name: str, size: int, shape: str, seed: int) -> Topology:
    """All ranks, with weight 1/p: exact after one round."""
    groups = grouping.by_label(np.zeros(size, np.int64), 1)
    made = grouped(name, size, 1, lambda t: groups)
    return made._replace(spectrum=lambda t: (np.arange(size) == 0).astype(float))


def random_groups(name: str, size: int, shape: str, seed: int) -> Topology:
    """Random groups of equal size, new ones in each round."""
    width = number_of(shape, name)
    return grouped(
        name, size, 0, lambda t: grouping.random_groups(size, width, seed, t)
    )


def independent_groups(name: str, size: int, shape: str, seed: int) -> Topology:
    """Random groups that each rank chooses from a number of groups, in each round."""
    count = number_of(shape, name)
    return grouped(
        name, size, 0, lambda t: grouping.independent_groups(size, count, seed, t)
    )


def grid(name: str, size: int, shape: str, seed: int) -> Topology:
    """The lines of a grid, along one axis after another (Moshpit, Ryabinin 2021)."""
    sides = sides_of(shape, name)
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


def number_of(shape: str, name: str) -> int:
    if not shape.isdecimal() or not 0 < int(shape) < MAX_SIZE:
        raise BadInput(
            f"expected a positive integer after the colon, got {name!r:.40}; pass "
            "text such as random_groups:32"
        )
    return int(shape)


Make = Callable[..., Topology]

TOPOLOGIES: dict[str, tuple[str, Make]] = {  # form of the text, and factory
    "ring": ("ring", ring),
    "torus": ("torus or torus:AxBx...", torus),
    "exponential": ("exponential", exponential),
    "one_peer_exponential": ("one_peer_exponential", one_peer_exponential),
    "hypercube": ("hypercube", hypercube),
    "complete": ("complete", complete),
    "random_groups": ("random_groups:RANKS", random_groups),
    "independent_groups": ("independent_groups:GROUPS", independent_groups),
    "grid": ("grid:MxMx...", grid),
    "tree": ("tree", branches),
    "chain": ("chain", branches),
    "star": ("star", branches),
}


@lru_cache(maxsize=64)
def topology(text: str, size: int, seed: int = 0) -> Topology:
    """Return a topology; equal arguments give the same object.

    Args:
      text: Name, with a shape after a colon if the name needs one.
      size: Number of ranks.
      seed: Random seed of groups and of seats in a grid.
    """
    name, colon, shape = text.partition(":")
    forms = ", ".join(form for form, _ in TOPOLOGIES.values())
    if name not in TOPOLOGIES or (colon and not shape):
        raise BadInput(f"expected a topology of {forms}, got {text!r:.40}; pass one")
    form, make = TOPOLOGIES[name]
    takes_shape, needs_shape = ":" in form, f"{name}:" in form[: len(name) + 1]
    if (colon and not takes_shape) or (needs_shape and not colon):
        raise BadInput(f"expected {form}, got {text!r:.40}; correct the text")
    if not 1 <= size <= MAX_SIZE:
        raise BadInput(f"expected 1 to {MAX_SIZE} ranks, got {size}; change the number")
    return make(text, size, shape, seed)
