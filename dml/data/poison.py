"""Wrong labels of Byzantine workers: draw number ~d is draw d with its label reversed.

    minibatch    d0 d1 │ d2 d3 │ ~d4 ~d5      the last worker is Byzantine
    labels       y0 y1 │ y2 y3 │ C-1-y4 ...   C classes

A minibatch remains an array of numbers, so every strategy trains on poisoned examples.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from dml.data.shards import bounds
from dml.types import BadInput, Batch, Problem

READ = 1024  # examples that are read at once for their labels


def with_reversed_labels(problem: Problem, classes: int) -> Problem:
    """Return the problem with negative draw numbers, whose labels are wrong.

    Args:
      problem: Problem whose batches have one label per example.
      classes: Number of classes; label y becomes classes - 1 - y.
    """

    def take(index: np.ndarray) -> Any:
        wrong = index < 0
        batch = problem.take(np.where(wrong, ~index, index))
        check_labels(batch)
        targets = np.asarray(batch.targets)
        reversed_targets = (classes - 1 - targets).astype(targets.dtype)
        return batch._replace(targets=np.where(wrong, reversed_targets, targets))

    return problem._replace(take=take)


def check_labels(batch: Any) -> None:
    """Raise BadInput unless a batch has one whole number per example as target."""
    targets = np.asarray(batch.targets) if isinstance(batch, Batch) else None
    if targets is None or targets.ndim != 1 or targets.dtype.kind not in "iu":
        raise BadInput(
            "expected a problem with one label per example for --attack=label_flip or "
            "--skew, got another; pass a problem of classification, such as vision.py"
        )


def poisoned(
    batches: Iterable[np.ndarray], workers: int, attackers: int
) -> Iterator[np.ndarray]:
    """Yield minibatches in which the parts of the last workers are poisoned."""
    for batch in batches:
        start, _ = bounds(len(batch), workers - attackers, workers)
        yield np.concatenate([batch[:start], ~batch[start:]])


def labels_of(problem: Problem) -> np.ndarray:
    """Return the labels of all examples of a problem of classification."""
    check_labels(problem.take(np.arange(1)))
    parts = [
        np.asarray(
            problem.take(np.arange(problem.examples)[first : first + READ]).targets
        )
        for first in range(0, problem.examples, READ)
    ]
    return np.concatenate(parts)
