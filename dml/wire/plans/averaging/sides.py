"""The sides of a bipartite graph for averages of pairs: active and passive ranks.

    active    1   3   5        An active rank requests an average of one passive
             ╱ ╲ ╱ ╲ ╱ ╲       neighbour at a time. Passive ranks never wait for a
    passive 0   2   4   …      reply, so that no cycle of waiting ranks can arise.

Pure arithmetic, without communication.
"""

from typing import NamedTuple

import numpy as np
import scipy  # its submodules are imported when they are used

from dml.types import BadInput
from dml.wire.plans.averaging.mixing import Topology, matrix


class Side(NamedTuple):
    """The side of a rank.

    Attributes:
      active: Whether the rank sends requests.
      neighbours: Ranks of the other side that share an edge with it.
    """

    active: bool
    neighbours: list[int]


def sides(topology: Topology) -> list[Side]:
    """Return the side of each rank.

    Ranks at an odd distance from rank 0 are active if the graph is bipartite. Otherwise
    odd ranks are active, and edges between ranks of one side are not used.

    Args:
      topology: Graph whose rounds repeat; edges of all rounds are used.
    """
    if not topology.period:
        raise BadInput(
            f"expected a graph whose rounds repeat for averages of pairs, got "
            f"{topology.name}; pass a topology such as ring or complete"
        )
    rounds = [matrix(topology, t) for t in range(topology.period)]
    edges_PxP = np.sum(rounds, axis=0) != 0
    edges_PxP |= edges_PxP.T
    graphs = scipy.sparse.csgraph
    distance = graphs.shortest_path(edges_PxP.astype(float), unweighted=True, indices=0)
    active = np.where(np.isfinite(distance), distance, 0) % 2 == 1
    if (
        edges_PxP & ~np.eye(len(active), dtype=bool) & (active[:, None] == active)
    ).any():
        active = np.arange(len(active)) % 2 == 1
    edges_PxP &= active[:, None] != active
    if graphs.connected_components(edges_PxP)[0] > 1:
        raise BadInput(
            f"expected edges between active and passive ranks that connect all "
            f"{topology.size} ranks, got those of {topology.name}; pass ring or "
            "complete"
        )
    return [
        Side(bool(on), np.flatnonzero(row).tolist())
        for on, row in zip(active, edges_PxP, strict=True)
    ]
