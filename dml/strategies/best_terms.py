"""Scores of gradients by their decrease of a loss, and the mean of the best ones."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dml.strategies.loops.parameters import TableParameters, Tree
from dml.strategies.loops.vectors import TableVectors, TreeVectors
from dml.types import BadInput, CountedComm, Problem
from dml.wire.comm.once import once_per_call
from dml.wire.reducers.robust.slices import Slices


class ScoreSettings(NamedTuple):
    """Settings of scores; see `dml.strategies.zeno`."""

    rate: float
    penalty: float
    sample: int
    seed: int


class BestTerms:
    """Means of the terms with the largest decrease of the loss of a random sample.

    Args:
      comm: Ranks; every rank has all terms.
      problem: Problem to train.
      parameters: Parameters in training.
      vectors: Vectors of the gradients.
      settings: Settings of scores.
    """

    def __init__(
        self,
        comm: CountedComm,
        problem: Problem,
        parameters: Tree | TableParameters,
        vectors: TreeVectors | TableVectors,
        settings: ScoreSettings,
    ):
        self.comm, self.problem = comm, problem
        self.parameters, self.vectors = parameters, vectors
        self.settings = settings

    def mean(
        self, gradients: np.ndarray, slices: Slices, keep: int, step: int
    ) -> np.ndarray:
        """Return the mean of the best gradients, for attacks that evaluate the rule."""
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
        """Return the score of each row, after multiplication by the number of rows."""
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
    """Return n times the mean of the rows with the best scores, of n rows.

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
