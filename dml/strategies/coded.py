"""Synchronous training with coded gradients: wrong terms of workers are not added.

    parts of a minibatch     worker 0   worker 1   worker 2     every part is computed
         0     1             0          1          0 …          by several workers
                             └── term ──┴── term ──┘            on ranks
                    exchange of slices, votes or syndromes
                    sum: the same update on all ranks

DRACO (Chen 2018): with repetition:s, groups of 2s+1 workers compute the same part, and
the term of a group is that of its majority. The run has the same bits under any attack
on at most s workers of each group. It equals `synchronous` with the star all-reduce on
n/(2s+1) ranks, bit for bit, on any number of ranks: parts are added in their order.
All workers must compute equal bits from equal examples: machines of one kind.
With cyclic:s, workers combine 2s+1 parts, and any s of all workers may be wrong; the
sum is decoded with rounding errors.

Each of n workers computes the gradients of (2s+1)/n of a minibatch, 2s+1 times those
of `synchronous`. `wire.reducers.robust.coded` states the rounds and the number of
elements sent per update.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from dml.data.feed import feed
from dml.data.shards import shards
from dml.metrics.timer import Timer
from dml.strategies.loops.parameters import Update, make_parameters
from dml.strategies.loops.vector_terms import check_workers, train_vectors
from dml.strategies.loops.vectors import ALL, make_vectors
from dml.types import CountedComm, Problem, Step
from dml.types.ranges import Size, checked
from dml.wire.plans.codes.coding import DEFAULT, Code, make_code
from dml.wire.reducers.robust.coded import CodedSum, encode
from dml.wire.reducers.robust.estimate import Estimator
from dml.wire.reducers.robust.rule import Byzantine


@checked
def coded(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    *,
    comm: CountedComm,
    timer: Timer,
    code: str = DEFAULT,
    rule: Estimator | None = None,
    byzantine: Byzantine | None = None,
    workers: Size = 0,
    columns: Sequence[slice] = ALL,
    prefetch: Size = 0,
    state: Any = None,
    memory: Any = None,
) -> Iterator[Step]:
    """Train on all ranks in lockstep; yield a Step after every update.

    Args:
      problem: Problem to train, equal on all ranks.
      batches: Indices of each global minibatch, equal on all ranks.
      update: optax optimizer for a tree, or rule of rows for a table.
      comm: Ranks.
      timer: Measures the phases.
      code: repetition:FAULTY or cyclic:FAULTY.
      rule: Robust estimate of the mean of the groups' gradients, of repetition; None:
        the exact mean.
      byzantine: Attack on the gradients of the last workers, which are in different
        groups; None: none.
      workers: Number of workers; 0: one per rank. The training does not depend on the
        number of ranks.
      columns: Columns of a table's gradients that are not always zero.
      prefetch: Number of minibatches prepared in the background.
      state: State of the update in an earlier Step; None starts anew.
      memory: Leaves of `memory` in an earlier Step, of each rank of that run.
    """
    plan = make_code(code, check_workers(comm, workers))
    parameters = make_parameters(problem, update, state)
    vectors = make_vectors(parameters, columns)
    sums = CodedSum(comm, plan, vectors.length, rule=rule, byzantine=byzantine)
    own = sums.terms.own
    computed = sorted({part for worker in own for part in plan.parts_of(worker)})
    split = split_parts(plan, computed)
    yield from train_vectors(
        parameters,
        vectors,
        feed(problem.take, batches, split, parameters.put, prefetch),
        comm=comm,
        timer=timer,
        count=len(computed),
        add_up=partial(add_up, timer, sums, computed),
        memory=memory,
    )


def add_up(
    timer: Timer,
    sums: CodedSum,
    computed: Sequence[int],
    gradients: np.ndarray,
    step: int,
) -> tuple[np.ndarray, dict[str, float]]:
    """Return the sum of all parts, and the number of wrong terms.

    Args:
      timer: Measures the phases.
      sums: Code, and exchange of the terms.
      computed: Numbers of the parts that this rank computes.
      gradients: Gradients of these parts.
      step: Number of earlier updates.
    """
    with timer("gradient"):
        by_part = dict(zip(computed, gradients, strict=True))
        encoded = [encode(sums.code, worker, by_part) for worker in sums.terms.own]
        terms = [term.astype(np.float32) for term in encoded]  # an attack changes them
    with timer("wire"):
        total, wrong = sums.add_up(terms, step)
    return total, {"wrong_terms": wrong}


def split_parts(
    code: Code, computed: Sequence[int]
) -> Callable[[np.ndarray], list[np.ndarray]]:
    """Return indices of a minibatch -> those of the parts that a rank computes."""

    def split(indices: np.ndarray) -> list[np.ndarray]:
        parts = shards(indices, code.parts)
        return [parts[part] for part in computed]

    return split
