"""Gradient tracking (Di Lorenzo 2016): ranks also mix their steps.

    y ← W y + s - s'       tracks the mean step of all ranks: Σy = Σs in every round
    x ← W (x + y)

Messages are twice as long as in gossip; replicas reach the minimum of the mean loss
with a constant learning rate, also if the ranks' data differ.

With d neighbours: 1 round, 2d·n words per rank and round of mixing.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from dml.strategies.decentral.replicas import Protocol, train_replicas
from dml.strategies.parameters import Update
from dml.types import Comm, CountedComm, Problem, Step
from dml.wire.averaging.gossip import gossip
from dml.wire.comm.buffers import Layout
from dml.wire.plans.graphs import topology as find_topology
from dml.wire.plans.mixing import Topology


class Tracked(NamedTuple):
    """W y for the next round, and the last step."""

    mixed: np.ndarray
    step: np.ndarray


def gradient_tracking(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    *,
    comm: CountedComm,
    topology: str = "ring",
    **own: Any,
) -> Iterator[Step]:
    """Train replicas by gradient tracking.

    Args:
      problem: Problem to train.
      batches: Indices of each global minibatch.
      update: Optimizer with a constant learning rate, or rule of rows.
      comm: Ranks.
      topology: Text of `graphs.topology`.
      **own: Options of `replicas.train_replicas`.
    """
    protocol = tracking(find_topology(topology, comm.size))
    return train_replicas(problem, batches, update, protocol, comm=comm, **own)


def tracking(graph: Topology) -> Protocol:
    """Return the protocol of gradient tracking on a graph."""

    def init(start: np.ndarray, like: Layout) -> Tracked:
        return Tracked(np.zeros_like(start), np.zeros_like(start))

    def mix(
        comm: Comm, before: np.ndarray, after: np.ndarray, t: int, last: Tracked
    ) -> Tracked:
        step = after - before
        tracked = last.mixed + step - last.step
        # x + y and y in one message
        both = np.concatenate([before + tracked, tracked])
        gossip(comm, both, graph, t)
        after[:], mixed = np.split(both, 2)
        return Tracked(mixed.copy(), step)

    return Protocol(init, mix)
