"""Gradient tracking (Di Lorenzo 2016): ranks also mix their steps.

    y ← W y + s - s'       tracks the mean step of all ranks: Σy = Σs in every round
    x ← W (x + y)

Messages are twice as long as in gossip; replicas reach the minimum of the mean loss
with a constant learning rate, also if the ranks' data differ.

With d neighbours: 1 round, 2d·n words per rank and round of mixing.
"""

from typing import NamedTuple

import numpy as np

from dml.strategies.decentral.replicas import Protocol, strategy
from dml.types import Comm
from dml.wire.averaging.gossip import gossip
from dml.wire.comm.buffers import TreeLayout
from dml.wire.plans.averaging.graphs import topology as find_topology


class Tracked(NamedTuple):
    """W y for the next round, and the last step."""

    mixed: np.ndarray
    step: np.ndarray


@strategy
def gradient_tracking(size: int, *, topology: str = "ring") -> Protocol:
    """Train replicas by gradient tracking, with a constant learning rate.

    Args:
      size: Number of ranks.
      topology: Text of `graphs.topology`.
    """
    graph = find_topology(topology, size)

    def init(start: np.ndarray, like: TreeLayout) -> Tracked:
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
