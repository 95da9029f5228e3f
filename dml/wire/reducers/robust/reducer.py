"""Reducers of robust estimates: n times the estimate of the mean of n terms.

A term is a gradient times its share of the examples. Shares must be equal, since a rule
compares the terms of workers. Rules, attacks and momentum read n times the terms, which
are gradients: some have absolute lengths, such as the radius of centred clipping.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dml.types import AllReduce, BadInput, Comm, Memory, Reducer, Rows
from dml.wire.collectives.all_gather_parts import gather_lengths
from dml.wire.comm.buffers import Layout
from dml.wire.reducers.robust import workers as own_terms
from dml.wire.reducers.robust.estimate import Estimator, estimate_slice
from dml.wire.reducers.robust.rule import Byzantine, Mixing, Rule, Slice
from dml.wire.reducers.robust.slices import Exchange, Slices, alone, scatter
from dml.wire.reducers.robust.workers import Workers
from dml.wire.reducers.rows import indices

MOMENTUM = 0.9  # of workers, by default


class State(NamedTuple):
    """The state of a robust reducer on a rank.

    Attributes:
      common: Last estimate, if the rule uses it, and number of estimates; equal on all
        ranks.
      workers: State of the terms of this rank.
    """

    common: Memory
    workers: Workers


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
    estimator = Estimator(rule, before)
    lag = byzantine.attack.lag if byzantine else 0

    # The length is in the structure of the state, which is not saved with its leaves.
    def init(layout: Layout) -> dict[int, State]:
        length = layout.length
        centre = np.zeros(length if estimator.centred else 0, np.float32)
        return {
            length: State(
                Memory(None, (centre, np.zeros(1, np.int64))),
                own_terms.start(length, 1, momentum, lag),
            )
        }

    def reduce_terms(
        comm: Comm, buffers: Sequence[np.ndarray], state: dict[int, State]
    ) -> dict[int, State]:
        ((length, memory),) = state.items()
        if buffers[0].dtype != np.float32:
            raise BadInput(
                f"rank {comm.rank}: expected float32 for a robust estimate, got "
                f"{buffers[0].dtype}; pass --reduce=exact"
            )
        terms = [buffer[:length] for buffer in buffers]
        if length:
            memory = replace_by_estimate(comm, terms, memory)
        scalars = [buffer[length:] for buffer in buffers]
        for other in scalars[1:]:
            scalars[0] += other
        if len(scalars[0]):
            allreduce(comm, scalars[0], op=np.add)
        return {length: memory}

    def replace_by_estimate(
        comm: Comm, terms: Sequence[np.ndarray], state: State
    ) -> State:
        (centre, step), workers = state.common.common, state.workers
        counts = gather_lengths(comm, len(terms))
        place = int(counts[: comm.rank].sum()), int(counts.sum())
        estimator.check(place[1])
        for term in terms:
            term *= np.float32(place[1])
        if len(terms) != 1 and not step[0]:
            workers = own_terms.start(len(terms[0]), len(terms), momentum, lag)
        if momentum:
            workers = own_terms.add_momentum(workers, terms, momentum)
        if byzantine:
            workers = own_terms.forge_own(
                workers, terms, byzantine, int(step[0]), place
            )
        slices = exchange(comm, terms, counts, allreduce)
        part = centre[slices.place] if estimator.centred else None
        own = robust_slice(estimator, slices, byzantine, part, int(step[0]))
        mean = slices.gather(own)
        terms[0][:] = mean
        if estimator.centred:
            centre = mean
        return State(Memory(None, (centre, step + 1)), workers)

    def combine(terms: Sequence[Rows]) -> Rows:
        estimator.check(len(terms))
        keys, rows = dense_rows(terms)
        rows *= np.float32(len(terms))
        if byzantine and byzantine.attack.own:
            for number in byzantine.workers(len(rows)):
                byzantine.attack.own(rows[number], 0, int(number))
        mean = robust_slice(estimator, alone(rows), byzantine, None, 0)
        width = terms[0].values.shape[1]
        return Rows(keys, mean.reshape(-1, width))

    has_combine = estimator.stateless and not momentum and not lag
    return Reducer(
        init,
        lambda comm, buffer, state: reduce_terms(comm, [buffer], state),
        combine if has_combine else None,
        reduce_terms,
    )


def robust_slice(
    estimator: Estimator,
    slices: Slices,
    byzantine: Byzantine | None,
    centre: np.ndarray | None,
    step: int,
) -> np.ndarray:
    """Return a slice of the estimate, after the attack.

    Args:
      estimator: Rule and mixing.
      slices: Slice of all terms.
      byzantine: Attack; None: none.
      centre: Slice of the last estimate; None: the origin.
      step: Number of earlier estimates.
    """
    rows, total = slices.rows, slices.total
    if centre is None:
        centre = np.zeros(rows.shape[1], np.float32)

    def estimate(rows: np.ndarray) -> np.ndarray:
        return estimate_slice(estimator, rows, centre, step, total)

    if byzantine and byzantine.attackers and byzantine.attack.forge:
        attackers = byzantine.workers(len(rows))
        byzantine.attack.forge(Slice(rows, attackers, step, total, estimate))
    return estimate(rows)


def dense_rows(terms: Sequence[Rows]) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows that any term has, and each term as a vector of all of them.

    Rows that a term lacks are zero.
    """
    keys = [indices(term.index) for term in terms]
    union = np.unique(np.concatenate(keys))
    width = terms[0].values.shape[1]
    rows = np.zeros((len(terms), len(union), width), np.float32)
    for row, key, term in zip(rows, keys, terms, strict=True):
        row[np.searchsorted(union, key)] = term.values
    return union.astype(np.int32), rows.reshape(len(terms), -1)
