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
from typing import Any, NamedTuple

import numpy as np

from dml.data.feed import feed
from dml.metrics.timer import Timer
from dml.strategies.coded import check_workers
from dml.strategies.parameters import (
    Table,
    Tree,
    Update,
    make_parameters,
    restore_memory,
    split_shards,
)
from dml.strategies.vectors import ALL, TableVectors, TreeVectors, make_vectors
from dml.types import BadInput, CountedComm, Memory, Problem, Step, identity
from dml.wire.comm.once import once_per_call
from dml.wire.reducers.robust.rule import Byzantine
from dml.wire.reducers.robust.slices import Slices, gather
from dml.wire.reducers.robust.terms import Terms


def zeno(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    *,
    comm: CountedComm,
    timer: Timer,
    faulty: int = 1,
    byzantine: Byzantine | None = None,
    rate: float = 0.1,
    penalty: float = 0.0005,
    sample: int = 12,
    seed: int = 0,
    workers: int = 0,
    columns: Sequence[slice] = ALL,
    prefetch: int = 0,
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
    if not 0 <= faulty < count:
        raise BadInput(
            f"expected 0 to {count - 1} faulty terms of {count} workers, got {faulty}; "
            "leave one worker or more"
        )
    parameters = make_parameters(problem, update, state)
    vectors = make_vectors(parameters, columns)
    settings = Settings(rate, penalty, min(sample, problem.examples), seed)
    best = BestTerms(comm, problem, parameters, vectors, settings)
    exchanged = Terms(comm, count, vectors.length, byzantine, gather)
    terms = np.zeros((len(exchanged.own), vectors.length + 1), np.float32)
    done = restore_memory(comm, Memory(None, np.zeros(1, np.int64)), memory)
    split = split_shards(comm, count, 1)
    minibatches = feed(problem.take, batches, split, parameters.put, prefetch)
    for number, (examples, parts) in enumerate(timer.waits("input", minibatches), 1):
        sent, step = comm.bytes_sent, int(done.common[0])
        with timer("gradient"):
            for term, part in zip(terms, parts, strict=True):
                term[-1], grads = parameters.mean_gradient([part], examples)
                vectors.pack(grads if part else None, term[:-1])
            comm.platform.work(1)
        with timer("wire"):
            mean = partial(best.mean, keep=count - faulty, step=step)
            slices = exchanged.collect(list(terms), step, mean)
        with timer("score"):
            gradients = exchanged.gradients(slices)
            total = best.add_up(slices.rows, gradients, count - faulty, step)
            done = Memory(None, done.common + 1)
        with timer("update"):
            parameters.apply(parameters.put(vectors.unpack(total[:-1])))
        yield Step(
            number=number,
            loss=float(total[-1]),
            params=parameters.collect,
            examples=examples,
            seconds=timer.lap(),
            words_sent=(comm.bytes_sent - sent) // terms.itemsize,
            state=parameters.state,
            memory=partial(identity, done),
            replicas=True,
        )


class Settings(NamedTuple):
    """Settings of scores; see `zeno`."""

    rate: float
    penalty: float
    sample: int
    seed: int


class BestTerms:
    """Sums of the terms that lower the loss of a sample the most.

    Args:
      comm: Ranks, which all have all terms.
      problem: Problem to train.
      parameters: Parameters in training.
      vectors: Vectors of the gradients.
      settings: Settings of scores.
    """

    def __init__(
        self,
        comm: CountedComm,
        problem: Problem,
        parameters: Tree | Table,
        vectors: TreeVectors | TableVectors,
        settings: Settings,
    ):
        self.comm, self.problem = comm, problem
        self.parameters, self.vectors = parameters, vectors
        self.settings = settings

    def mean(
        self, gradients: np.ndarray, slices: Slices, keep: int, step: int
    ) -> np.ndarray:
        """Return the mean of the best gradients, as an attack reads it."""
        total = self.add_up(gradients, gradients, keep, step)
        return total / np.float32(len(gradients))

    def add_up(
        self, rows: np.ndarray, gradients: np.ndarray, keep: int, step: int
    ) -> np.ndarray:
        """Return n times the mean of the best of n rows.

        Args:
          rows: n gradients with scalars after them.
          gradients: The gradients, which are scored.
          keep: Greatest number of rows that are added.
          step: Number of earlier updates; seed of the sample.
        """
        score = partial(self.scores, gradients, step)
        scores = once_per_call(self.comm, "scores", score)
        return mean_of_best(rows, scores, keep)

    def scores(self, rows: np.ndarray, step: int) -> np.ndarray:
        """Return the score of each row, times the number of rows, as a gradient."""
        draws = np.random.default_rng([self.settings.seed, step])
        drawn = draws.choice(self.problem.examples, self.settings.sample, replace=False)
        # sorted: GloVe reads the range from the first to the last example
        batch = self.parameters.put(self.problem.take(np.sort(drawn)))
        params = self.parameters.collect()
        start = self.loss(params, batch)
        scores = np.full(len(rows), -np.inf)
        with np.errstate(over="ignore", invalid="ignore"):
            for number, row in enumerate(rows):
                gradient = row * len(rows)
                if not np.isfinite(gradient).all():
                    continue
                moved = self.vectors.moved(params, self.settings.rate * gradient)
                norm = np.square(gradient, dtype=np.float64).sum()
                score = start - self.loss(moved, batch) - self.settings.penalty * norm
                if np.isfinite(score):
                    scores[number] = score
        return scores

    def loss(self, params: Any, batch: Any) -> float:
        return float(self.problem.gradient(params, batch)[0])


def mean_of_best(rows: np.ndarray, scores: np.ndarray, count: int) -> np.ndarray:
    """Return n times the mean of the best of n rows, added in their order.

    Args:
      rows: Rows.
      scores: Score of each row; rows with a score of -inf are never added.
      count: Greatest number of rows that are added.
    """
    best = np.argsort(-scores, kind="stable")[:count]
    best = np.sort(best[np.isfinite(scores[best])])
    if not len(best):
        raise BadInput(
            f"expected a finite term that leads to a finite loss, got none of "
            f"{len(rows)} workers; pass a smaller rate"
        )
    total = rows[best[0]].copy()
    for number in best[1:]:  # order matters: that of workers
        total += rows[number]
    if len(best) < len(rows):
        total *= total.dtype.type(len(rows) / len(best))
    return total
