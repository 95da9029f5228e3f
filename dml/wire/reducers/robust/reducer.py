"""Reducers of robust estimates: n times the estimate of the mean of n terms.

A term is a gradient times its share of the examples. Shares must be equal, since a rule
compares the terms of workers.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dml.types import AllReduce, BadInput, Comm, Memory, Reducer, Rows, TermMemory
from dml.wire.collectives.all_gather_parts import all_gather_parts, gather_lengths
from dml.wire.comm.buffers import TreeLayout
from dml.wire.comm.plain import as_comm
from dml.wire.reducers.lossy import refuse_statistics
from dml.wire.reducers.robust import workers as own_terms
from dml.wire.reducers.robust.estimate import Estimator, estimate_slice
from dml.wire.reducers.robust.rule import Byzantine, Mixing, Rule, Slice
from dml.wire.reducers.robust.slices import Exchange, Slices, alone, scatter
from dml.wire.reducers.rows import Keys, indices

MOMENTUM = 0.9  # of workers, by default


class RobustState(NamedTuple):
    """The state of a robust reducer on a rank.

    Attributes:
      common: Number of estimates, one element; the last estimate, or None if the rule
        does not use it; and under an attack the last errors, see `errors`. Equal on all
        ranks.
      workers: State of the terms of this rank, a `workers.Workers`.
    """

    common: Memory
    workers: TermMemory


States = dict[int, RobustState]  # the one state, by the length of the gradient


def robust(
    rule: Rule,
    *before: Mixing,
    allreduce: AllReduce,
    momentum: float = 0.0,
    exchange: Exchange = scatter,
    byzantine: Byzantine | None = None,
) -> Reducer:
    """Return the reducer of a robust rule.

    Args:
      rule: Estimates the mean of the terms.
      *before: Mixing of the terms, in order.
      allreduce: Sums distances of slices, and scalars after the gradient.
      momentum: Factor β of the workers' momentum m = βm + (1-β)g, which they send
        instead of gradients g; 0: none.
      exchange: A value of `slices.EXCHANGES`.
      byzantine: Attack; None: none.
    """
    sums = RobustSums(Estimator(rule, before), allreduce, momentum, exchange, byzantine)
    return Reducer(
        sums.init,
        sums.reduce,
        sums.combine if sums.stateless else None,
        sums.reduce_terms,
        least_terms=sums.estimator.least(),
        equal_shares=True,
        measures=deviation if sums.attackers else None,
    )


class RobustSums:
    """Estimates of the sum of the terms of all ranks; see `robust`."""

    def __init__(
        self,
        estimator: Estimator,
        allreduce: AllReduce,
        momentum: float,
        exchange: Exchange,
        byzantine: Byzantine | None,
    ):
        self.estimator, self.allreduce, self.momentum = estimator, allreduce, momentum
        self.exchange, self.byzantine = exchange, byzantine
        self.lag = byzantine.attack.lag if byzantine else 0
        self.attackers = byzantine.attackers if byzantine else 0

    @property
    def stateless(self) -> bool:
        return self.estimator.stateless and not self.momentum and not self.lag

    # The length is in the structure of the state, which is not saved with its leaves.

    def init(self, layout: TreeLayout) -> States:
        """Return the state of this rank."""
        if self.momentum:
            refuse_statistics(layout, f"{self.estimator.name}+momentum")
        length = layout.length
        centre = np.zeros(length, np.float32) if self.estimator.centred else None
        workers = own_terms.start(length, 1, self.momentum, self.lag)
        errors = np.zeros(2) if self.attackers else None
        common = Memory(common=(np.zeros(1, np.int64), centre, errors))
        return {length: RobustState(common, TermMemory(workers))}

    def reduce(self, comm: Comm, buffer: np.ndarray, states: States) -> States:
        """Replace the term of this rank by the estimate."""
        counts = np.ones(comm.size, np.int64)
        return self.reduce_all(as_comm(comm), [buffer], counts, states)

    def reduce_terms(
        self, comm: Comm, buffers: Sequence[np.ndarray], states: States
    ) -> States:
        """Replace the first of this rank's terms by the estimate."""
        comm = as_comm(comm)
        counts = gather_lengths(comm, len(buffers))
        return self.reduce_all(comm, buffers, counts, states)

    def reduce_all(
        self,
        comm: Comm,
        buffers: Sequence[np.ndarray],
        counts: np.ndarray,
        states: States,
    ) -> States:
        """Estimate the sum of gradients, and add the scalars after them.

        Args:
          comm: The ranks.
          buffers: This rank's terms.
          counts: Numbers of terms of all ranks.
          states: The state of this rank.
        """
        ((length, state),) = states.items()
        check_dtype(comm, buffers[0])
        self.estimator.check(int(counts.sum()))
        if length:
            terms = [buffer[:length] for buffer in buffers]
            state = self.replace_by_estimate(comm, terms, counts, state)
        if length < len(buffers[0]):
            add_scalars(comm, [buffer[length:] for buffer in buffers], counts)
        return {length: state}

    def replace_by_estimate(
        self,
        comm: Comm,
        terms: Sequence[np.ndarray],
        counts: np.ndarray,
        state: RobustState,
    ) -> RobustState:
        """Replace the first term by the estimate; see `reduce_all`."""
        (step, centre, errors), workers = state.common.common, state.workers.arrays
        if not own_terms.fits(workers, len(terms)):
            workers = own_terms.start(
                len(terms[0]), len(terms), self.momentum, self.lag
            )
        workers = own_terms.add_momentum(workers, terms, self.momentum)
        if self.byzantine:
            place = int(counts[: comm.rank].sum()), int(counts.sum())
            workers = own_terms.forge_own(
                workers, terms, self.byzantine, int(step[0]), place
            )
        slices = self.exchange(comm, terms, counts, self.allreduce)
        part = None if centre is None else centre[slices.place]
        estimated = self.estimate(slices, part, int(step[0]))
        terms[0][:] = result = slices.gather(estimated)
        if self.attackers:
            errors = self.errors(slices, estimated)
        centre = None if centre is None else result
        return RobustState(
            Memory(common=(step + 1, centre, errors)), TermMemory(workers)
        )

    def estimate(
        self, slices: Slices, centre: np.ndarray | None, step: int
    ) -> np.ndarray:
        """Return a slice of the estimate of the sum of terms, after the attack.

        Args:
          slices: Slice of all terms.
          centre: Slice of the last estimate; None: the origin.
          step: Number of earlier estimates.
        """
        count, byzantine = len(slices.rows), self.byzantine

        def estimate(rows: np.ndarray) -> np.ndarray:
            return estimate_slice(
                self.estimator,
                rows,
                centre,
                step,
                slices.total,
                scale=count,
                run=slices.run,
            )

        def estimate_mean(rows: np.ndarray) -> np.ndarray:
            return estimate(rows) / np.float32(count)

        if byzantine and self.attackers and byzantine.attack.forge:
            attackers = byzantine.workers(count)
            byzantine.attack.forge(
                Slice(slices.rows, attackers, step, slices.total, estimate_mean)
            )
        return estimate(slices.rows)

    def errors(self, slices: Slices, estimated: np.ndarray) -> np.ndarray:
        """Return the squared lengths of the estimate's error, and of the honest sum.

        Both are of sums over all workers, if attackers sent the mean of the others.

        Args:
          slices: Slice of all terms; collective.
          estimated: Slice of the estimate of their sum.
        """
        count = len(slices.rows)
        honest = slices.rows[: count - self.attackers]
        ideal = honest.mean(axis=0, dtype=np.float64) * count
        error = estimated - ideal
        return slices.total(np.array([np.vdot(error, error), np.vdot(ideal, ideal)]))

    def combine(self, terms: Sequence[Rows]) -> Rows:
        """Return the estimate of the sum of an update's terms on a server."""
        self.estimator.check(len(terms))
        keys, rows = dense_rows(terms)
        if self.byzantine and self.byzantine.attack.own:
            for number in self.byzantine.workers(len(rows)):
                self.byzantine.attack.own(rows[number], 0, int(number))
        total = self.estimate(alone(rows), None, 0)
        return Rows(keys, total.reshape(-1, terms[0].values.shape[1]))


def deviation(buckets: Sequence[States]) -> dict[str, float]:
    """Return the last error of an estimate, relative to the mean of honest workers."""
    states = [state for bucket in buckets for state in bucket.values()]
    error, ideal = sum(state.common.common[2] for state in states)
    return {"deviation": float(np.sqrt(error / ideal)) if ideal else 0.0}


def check_dtype(comm: Comm, buffer: np.ndarray) -> None:
    """Raise BadInput unless a buffer is float32."""
    if buffer.dtype != np.float32:
        raise BadInput(
            f"rank {comm.rank}: expected float32 for a robust estimate, got "
            f"{buffer.dtype}; pass --reduce=exact"
        )


def add_scalars(comm: Comm, scalars: Sequence[np.ndarray], counts: np.ndarray) -> None:
    """Add the scalars of all terms, in the order of the terms, into the first.

    Args:
      comm: The ranks.
      scalars: Scalars of each of this rank's terms.
      counts: Number of terms of each rank.
    """
    own = np.concatenate(scalars)
    gathered = all_gather_parts(comm, own, counts * len(scalars[0]))
    scalars[0][:] = sum(gathered.reshape(-1, len(scalars[0])))


def dense_rows(terms: Sequence[Rows]) -> tuple[Keys, np.ndarray]:
    """Return the rows that any term has, and each term as a vector of all of them.

    Rows that a term lacks are zero.
    """
    first = terms[0].index
    if all(isinstance(t.index, slice) and t.index == first for t in terms):
        return first, np.stack([term.values.reshape(-1) for term in terms])
    keys = [indices(term.index) for term in terms]
    union = np.unique(np.concatenate(keys))
    width = terms[0].values.shape[1]
    rows = np.zeros((len(terms), len(union), width), np.float32)
    for row, key, term in zip(rows, keys, terms, strict=True):
        row[np.searchsorted(union, key)] = term.values
    return union.astype(np.int32), rows.reshape(len(terms), -1)
