"""Decentralised SGD (D-PSGD, Lian 2017): an update, then a mean over neighbours.

    x_i ← Σ_j w_ij (x_j + s_j)          s_j: the step of rank j

W is doubly stochastic, so that the mean over ranks moves as in synchronous SGD. On a
complete graph replicas stay equal, and training is synchronous SGD except for rounding.

With d neighbours: 1 round, d·n words per rank and round of mixing.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from dml.strategies.decentral.replicas import stateless, train_replicas
from dml.strategies.parameters import Update
from dml.types import Comm, CountedComm, Problem, Step
from dml.wire.averaging.gossip import gossip as mix_with_neighbours
from dml.wire.plans.graphs import topology as find_topology
from dml.wire.plans.mixing import Topology


def gossip(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    *,
    comm: CountedComm,
    topology: str = "exponential",
    **own: Any,
) -> Iterator[Step]:
    """Train replicas that are mixed with those of their neighbours.

    Args:
      problem: Problem to train.
      batches: Indices of each global minibatch.
      update: Optimizer, or rule of rows.
      comm: Ranks.
      topology: Text of `graphs.topology`.
      **own: Options of `replicas.train_replicas`.
    """
    graph = find_topology(topology, comm.size)
    protocol = stateless(partial(mix, graph))
    return train_replicas(problem, batches, update, protocol, comm=comm, **own)


def mix(graph: Topology, comm: Comm, vector: np.ndarray, t: int) -> None:
    mix_with_neighbours(comm, vector, graph, t)
