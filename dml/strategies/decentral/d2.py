"""D² (Tang 2018): gossip whose bias by different data of the ranks cancels.

    x ← W (2x - x' + s - s')          x', s': parameters and step of the round before
    x ← W (x + s)                     in the first round

W must be symmetric with eigenvalues above -1/3. With one learning rate the fixed point
is that of the mean of all ranks' losses, however much they differ.

With d neighbours: 1 round, d·n words per rank and round of mixing.
"""

from typing import NamedTuple

import numpy as np

from dml.strategies.decentral.replicas import Protocol, strategy
from dml.types import BadInput, Comm
from dml.wire.averaging.gossip import gossip
from dml.wire.comm.buffers import TreeLayout
from dml.wire.plans.averaging.graphs import topology as find_topology
from dml.wire.plans.averaging.mixing import MAX_DENSE, Topology, matrix

LEAST = -1 / 3  # eigenvalues of W are greater


class Earlier(NamedTuple):
    """Parameters and step of the round before."""

    params: np.ndarray
    step: np.ndarray


@strategy
def d2(size: int, *, topology: str = "ring") -> Protocol:
    """Train replicas by D², with a constant learning rate.

    Args:
      size: Number of ranks.
      topology: Text of `graphs.topology`, of equal and symmetric rounds.
    """
    graph = find_topology(topology, size)
    check_symmetric(graph)

    def init(start: np.ndarray, like: TreeLayout) -> Earlier:
        return Earlier(start, np.zeros_like(start))

    def mix(
        comm: Comm, before: np.ndarray, after: np.ndarray, t: int, earlier: Earlier
    ) -> Earlier:
        step = after - before
        if t:  # order matters: `after` is x + s
            after += before - earlier.params - earlier.step
        gossip(comm, after, graph, t)
        return Earlier(before, step)

    return Protocol(init, mix)


def check_symmetric(graph: Topology) -> None:
    """Raise BadInput unless W is constant, symmetric, with eigenvalues above -1/3."""
    if graph.period == 1 and graph.size <= MAX_DENSE:
        weights = matrix(graph)
        if np.array_equal(weights, weights.T):
            least = np.linalg.eigvalsh(weights)[0]
            if least > LEAST:
                return
            raise BadInput(
                f"expected eigenvalues above -1/3 for d2, got {least:.3f} of "
                f"{graph.name} on {graph.size} ranks; pass --topology=ring"
            )
    raise BadInput(
        f"expected equal rounds with symmetric weights for d2, got {graph.name}; pass "
        "--topology=ring, torus or complete"
    )
