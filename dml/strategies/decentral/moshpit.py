"""Moshpit SGD (Ryabinin 2021): local updates, then exact means inside groups.

    round 0: 0 ─ 1 ─ 2    round 1: 0   1   2      ranks of a line average; a grid of
             3 ─ 4 ─ 5             │   │   │      M^d ranks has the exact mean of all
             6 ─ 7 ─ 8             3   4   5 …    after d rounds without updates

In groups of g ranks: 2(g-1)/g·n words per rank and round of mixing.
"""

import numpy as np

from dml.strategies.decentral.replicas import Protocol, stateless, strategy
from dml.types import BadInput, Comm
from dml.wire.averaging.groups import group_average
from dml.wire.plans.averaging.graphs import topology as find_topology


@strategy
def moshpit(size: int, *, topology: str = "") -> Protocol:
    """Train replicas that are averaged in groups.

    Args:
      size: Number of ranks.
      topology: grid:MxM, random_groups:RANKS or complete; empty: the squarest grid.
    """
    graph = find_topology(topology or squarest_grid(size), size)
    if graph.groups is None:
        raise BadInput(
            f"expected a topology of groups for moshpit, got {graph.name}; pass "
            "--topology=grid:MxM or random_groups:RANKS, or --strategy=gossip"
        )

    def mix(comm: Comm, vector: np.ndarray, t: int) -> None:
        group_average(comm, vector, graph, t)

    return stateless(mix)


def squarest_grid(size: int) -> str:
    """Return the grid of two sides whose lengths differ least, or one group."""
    side = next(k for k in range(int(size**0.5), 0, -1) if size % k == 0)
    return f"grid:{side}x{size // side}" if side > 1 else "complete"
