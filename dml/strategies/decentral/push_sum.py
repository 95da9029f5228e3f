"""Stochastic gradient push (SGP, Assran 2019): gossip on directed graphs by push-sum.

    x_i ← Σ_j a_ij (x_j + s_j)     w_i ← Σ_j a_ij w_j     z_i = x_i / w_i

Gradients are computed at z. The columns of A sum to 1, so Σx and Σw never change by
mixing, also where a graph has no doubly stochastic weights.

With d neighbours: 1 round, d(n + 2) words of 4 bytes per rank and round of mixing.
"""

from typing import NamedTuple

import numpy as np

from dml.strategies.decentral.replicas import Protocol, strategy
from dml.types import Comm
from dml.wire.averaging.push_sum import PushSum
from dml.wire.averaging.push_sum import push_sum as push_shares
from dml.wire.comm.buffers import TreeLayout
from dml.wire.plans.averaging.graphs import topology as find_topology


class Share(NamedTuple):
    """Value x and weight w of a rank, as arrays."""

    value: np.ndarray
    weight: np.ndarray


@strategy
def push_sum(size: int, *, topology: str = "one_peer_exponential") -> Protocol:
    """Train replicas that push shares of value and weight to their neighbours.

    Args:
      size: Number of ranks.
      topology: Text of `graphs.topology`.
    """
    graph = find_topology(topology, size)

    def init(start: np.ndarray, like: TreeLayout) -> Share:
        return Share(start, np.ones(1))

    def mix(
        comm: Comm, before: np.ndarray, after: np.ndarray, t: int, share: Share
    ) -> Share:
        value = share.value + (after - before)
        state = push_shares(comm, value, graph, t, PushSum(float(share.weight[0])))
        after[:] = value / value.dtype.type(state.weight)
        return Share(value, np.array([state.weight]))

    # Σx / p is the mean that push-sum conserves; z_i only tends to it
    return Protocol(init, mix, lambda vector, share: share.value)
