"""Stochastic gradient push (SGP, Assran 2019): gossip on directed graphs by push-sum.

    x_i ← Σ_j a_ij (x_j + s_j)     w_i ← Σ_j a_ij w_j     z_i = x_i / w_i

Gradients are computed at z. The columns of A sum to 1, so Σx and Σw never change by
mixing, also where a graph has no doubly stochastic weights.

With d neighbours: 1 round, d(n + 2) words of 4 bytes per rank and round of mixing.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from dml.strategies.decentral.replicas import Protocol, train_replicas
from dml.strategies.parameters import Update
from dml.types import Comm, CountedComm, Problem, Step
from dml.wire.averaging.push_sum import PushSum
from dml.wire.averaging.push_sum import push_sum as push_shares
from dml.wire.comm.buffers import Layout
from dml.wire.plans.graphs import topology as find_topology
from dml.wire.plans.mixing import Topology


class Share(NamedTuple):
    """Value x and weight w of a rank, as arrays."""

    value: np.ndarray
    weight: np.ndarray


def push_sum(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    *,
    comm: CountedComm,
    topology: str = "one_peer_exponential",
    **own: Any,
) -> Iterator[Step]:
    """Train replicas that push shares of value and weight to their neighbours.

    Args:
      problem: Problem to train.
      batches: Indices of each global minibatch.
      update: Optimizer, or rule of rows.
      comm: Ranks.
      topology: Text of `graphs.topology`.
      **own: Options of `replicas.train_replicas`.
    """
    protocol = pushing(find_topology(topology, comm.size))
    return train_replicas(problem, batches, update, protocol, comm=comm, **own)


def pushing(graph: Topology) -> Protocol:
    """Return the protocol of push-sum on a graph."""

    def init(start: np.ndarray, like: Layout) -> Share:
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
