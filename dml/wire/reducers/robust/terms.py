"""The terms of logical workers on ranks, after an attack on the gradients in them.

    rank 0        rank 1          n workers on p ranks: each rank has consecutive ones
    w0  w1  w2    w3  w4          the last workers are attackers
    g l g l g l   g l g l         an attack replaces gradients g, not the scalars l

Strategies use it whose rules are not reducers: `coded` and `zeno`. An exchange states
its rounds and words; see `slices`.
"""

from collections.abc import Callable, Sequence

import numpy as np

from dml.types import Comm
from dml.wire.collectives.tree import tree_allreduce
from dml.wire.plans.topology import chunks
from dml.wire.reducers.robust import workers as own_terms
from dml.wire.reducers.robust.rule import Byzantine, Slice
from dml.wire.reducers.robust.slices import Exchange, Slices, scatter


class Terms:
    """The terms of all workers, of which each rank has consecutive ones.

    A term is a gradient and then scalars, such as the loss. Attacks replace gradients.

    Args:
      comm: Ranks.
      workers: Number of workers, at least one per rank.
      length: Number of elements of a gradient.
      byzantine: Attack; None: none.
      exchange: A value of `slices.EXCHANGES`.
    """

    def __init__(
        self,
        comm: Comm,
        workers: int,
        length: int,
        byzantine: Byzantine | None = None,
        exchange: Exchange = scatter,
    ):
        self.comm, self.length, self.byzantine = comm, length, byzantine
        places = chunks(workers, comm.size)
        self.counts = np.array([place.stop - place.start for place in places])
        self.own = range(workers)[places[comm.rank]]  # workers of this rank
        self.workers, self.exchange = workers, exchange
        lag = byzantine.attack.lag if byzantine else 0
        self.state = own_terms.start(length, len(self.own), 0.0, lag)

    def collect(
        self,
        terms: Sequence[np.ndarray],
        step: int,
        estimate: Callable[[np.ndarray, Slices], np.ndarray],
    ) -> Slices:
        """Return a slice of the terms of all workers, after the attack; collective.

        Args:
          terms: Terms of this rank's workers.
          step: Number of earlier updates.
          estimate: (gradients, slices) -> the estimate that attackers know.
        """
        if self.byzantine:
            gradients = [term[: self.length] for term in terms]
            place = self.own.start, self.workers
            self.state = own_terms.forge_own(
                self.state, gradients, self.byzantine, step, place
            )
        slices = self.exchange(self.comm, terms, self.counts, tree_allreduce)
        if self.byzantine and self.byzantine.attackers and self.byzantine.attack.forge:
            gradients_NxD = np.ascontiguousarray(self.gradients(slices))
            attackers = self.byzantine.workers(self.workers)

            def known(rows: np.ndarray) -> np.ndarray:
                return estimate(rows, slices)

            self.byzantine.attack.forge(
                Slice(gradients_NxD, attackers, step, slices.total, known)
            )
            self.gradients(slices)[:] = gradients_NxD
        return slices

    def gradients(self, slices: Slices) -> np.ndarray:
        """Return the columns of a slice that are not scalars."""
        return slices.rows[:, : max(0, self.length - slices.place.start)]
