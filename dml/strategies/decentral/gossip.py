"""Decentralised SGD (D-PSGD, Lian 2017): an update, then a mean over neighbours.

    x_i ← Σ_j w_ij (x_j + s_j)          s_j: the step of rank j

W is doubly stochastic, so that the mean over ranks moves as in synchronous SGD. On a
complete graph replicas stay equal, and training is synchronous SGD except for rounding.

With d neighbours: 1 round, d·n words per rank and round of mixing.
"""

import numpy as np

from dml.strategies.decentral.replicas import Protocol, stateless, strategy
from dml.types import Comm
from dml.wire.averaging.gossip import gossip as mix_with_neighbours
from dml.wire.plans.averaging.graphs import topology as find_topology


@strategy
def gossip(size: int, *, topology: str = "exponential") -> Protocol:
    """Train replicas that are mixed with those of their neighbours.

    Args:
      size: Number of ranks.
      topology: Text of `graphs.topology`.
    """
    graph = find_topology(topology, size)

    def mix(comm: Comm, vector: np.ndarray, t: int) -> None:
        mix_with_neighbours(comm, vector, graph, t)

    return stateless(mix)
