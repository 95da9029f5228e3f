"""Zeno (Xie 2019): add the gradients that lower the loss of a few examples the most.

    term of worker 0 ─┐   all ranks     score 0   ─► sort: best    ┐ mean of the
    term of worker 1 ─┼─ receive all ─► score 1      …             ┘ n - f best
    term of worker 2 ─┘   terms         score 2      worst: f terms are not added

The score of a gradient g at parameters x is loss(x) - loss(x - γg) - ρ|g|², on a sample
of examples that all ranks draw from a common seed. One right worker is enough: f may be
n - 1. Terms that are not finite, or lead to a loss that is not, are never added.

Every rank scores every term and depends on no decision of another rank. p-1 rounds; for
n terms of d elements on p ranks with equal numbers of terms, all ranks send (p-1)n·d
elements, and n + 1 losses of the sample are computed on each rank.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from dml.data.feed import feed
from dml.metrics.timer import Timer
from dml.strategies.best_terms import BestTerms, ScoreSettings
from dml.strategies.loops.parameters import (
    Update,
    make_parameters,
    split_shards,
)
from dml.strategies.loops.vector_terms import check_workers, train_vectors
from dml.strategies.loops.vectors import ALL, make_vectors
from dml.types import BadInput, CountedComm, Problem, Step
from dml.types.ranges import Count, Number, Seed, Size, checked
from dml.wire.reducers.robust.rule import Byzantine
from dml.wire.reducers.robust.slices import gather
from dml.wire.reducers.robust.terms import Terms


@checked
def zeno(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    *,
    comm: CountedComm,
    timer: Timer,
    faulty: Size = 1,
    byzantine: Byzantine | None = None,
    rate: Number = 0.1,
    penalty: Number = 0.0005,
    sample: Count = 12,
    seed: Seed = 0,
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
      faulty: Number of terms that are not added, f.
      byzantine: Attack on the gradients of the last workers; None: none.
      rate: Step size γ of the scores; about that of the update.
      penalty: Factor ρ of the squared norms in the scores.
      sample: Number of examples of the scores.
      seed: Random seed of the samples.
      workers: Number of workers; 0: one per rank.
      columns: Columns of a table's gradients that are not always zero.
      prefetch: Number of minibatches prepared in the background.
      state: State of the update in an earlier Step; None starts anew.
      memory: Leaves of `memory` in an earlier Step, of each rank of that run.
    """
    count = check_workers(comm, workers)
    check_faulty(faulty, count)
    parameters = make_parameters(problem, update, state)
    vectors = make_vectors(parameters, columns)
    settings = ScoreSettings(rate, penalty, min(sample, problem.examples), seed)
    best = BestTerms(comm, problem, parameters, vectors, settings)
    exchanged = Terms(comm, count, vectors.length, byzantine, gather)
    split = split_shards(comm, count, 1)
    yield from train_vectors(
        parameters,
        vectors,
        feed(problem.take, batches, split, parameters.put, prefetch),
        comm=comm,
        timer=timer,
        count=len(exchanged.own),
        add_up=partial(add_up, timer, exchanged, best, count - faulty),
        memory=memory,
    )


def add_up(
    timer: Timer,
    exchanged: Terms,
    best: BestTerms,
    keep: int,
    terms: np.ndarray,
    step: int,
) -> tuple[np.ndarray, dict[str, float]]:
    """Return n times the mean of the best terms; see `AddUp`.

    Args:
      timer: Measures the phases.
      exchanged: Terms of all workers.
      best: Selects terms.
      keep: Greatest number of terms that are added.
      terms: Terms of this rank's workers.
      step: Number of earlier updates.
    """
    with timer("wire"):
        mean = partial(best.mean, keep=keep, step=step)
        slices = exchanged.collect(list(terms), step, mean)
    with timer("score"):
        gradients = exchanged.gradients(slices)
        return best.add_up(slices.rows, gradients, keep, step), {}


def check_faulty(faulty: int, workers: int) -> None:
    """Raise BadInput unless at least one worker is honest."""
    if not 0 <= faulty < workers:
        raise BadInput(
            f"expected 0 to {workers - 1} faulty terms of {workers} workers, got "
            f"{faulty}; leave one worker or more"
        )
