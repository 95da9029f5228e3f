"""The sums over all ranks of an asynchronous strategy between two barriers.

rank 0   x─x─x─x─x─x─x─x ──────┐ Step      x: an update, or an exchange
rank 1   x───x───x───x─── wait │           All ranks agree on the numbers of a Step.
rank 2   x─x─x─x─x─x ───────── ┘
"""

from typing import NamedTuple

import numpy as np

from dml.strategies.loops.rounds import Round
from dml.types import CountedComm
from dml.wire.collectives import tree_allreduce
from dml.wire.comm.metered import uncounted


class BarrierSums(NamedTuple):
    """Sums over the updates since a barrier, of one rank or of all ranks.

    Attributes:
      updates: Number of updates.
      examples: Number of examples.
      losses: Sum of the losses of these examples.
      exchanges: Number of exchanges, each with a staleness.
      staleness: Sum of the staleness of exchanges.
    """

    updates: int = 0
    examples: int = 0
    losses: float = 0.0
    exchanges: int = 0
    staleness: int = 0

    def add(self, done: Round, updates: int) -> "BarrierSums":
        """Return the sums with those of a round of this rank."""
        return self._replace(
            updates=self.updates + updates,
            examples=self.examples + done.examples,
            losses=self.losses + done.loss * done.examples,
        )

    @property
    def loss(self) -> float:
        return self.losses / self.examples if self.examples else 0.0

    @property
    def measures(self) -> dict[str, float]:
        return {"staleness": self.staleness / (self.exchanges or 1)}


def sum_over_ranks(comm: CountedComm, sums: BarrierSums) -> BarrierSums:
    """Return the sums over all ranks; a barrier, whose bytes are not counted."""
    total = np.array(sums, np.float64)
    tree_allreduce(uncounted(comm), total)
    updates, examples, losses, exchanges, staleness = total.tolist()
    return BarrierSums(
        int(updates), int(examples), losses, int(exchanges), int(staleness)
    )
