"""Synchronous training on gradient vectors of logical workers: `coded` and `zeno`.

    minibatch ──► parts ──► terms of own workers ──► total ──► update
                  gradients of a rank      exchange and decision

A term is a vector: a gradient, followed by its loss.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from dml.data.feed import Part, SplitMinibatch
from dml.metrics.timer import Timer
from dml.strategies.parameters import Table, Tree, restore_memory
from dml.strategies.vectors import TableVectors, TreeVectors
from dml.types import BadInput, CountedComm, Memory, Step, identity

# (terms of own workers, parts, examples of the minibatch) -> computed share of it
Fill: TypeAlias = Callable[[np.ndarray, Sequence[Part | None], int], float]
# (terms of own workers, earlier updates) -> sum of all parts, and measures; collective
AddUp: TypeAlias = Callable[
    [Sequence[np.ndarray], int], tuple[np.ndarray, Mapping[str, float]]
]


def train_vectors(
    parameters: Tree | Table,
    vectors: TreeVectors | TableVectors,
    minibatches: Iterable[SplitMinibatch],
    *,
    comm: CountedComm,
    timer: Timer,
    workers: int,
    fill: Fill,
    add_up: AddUp,
    memory: Any = None,
) -> Iterator[Step]:
    """Train by sums of terms; yield a Step after every update.

    Args:
      parameters: Parameters in training.
      vectors: Conversion of gradients to vectors and back.
      minibatches: Number of examples, and this rank's parts, of each minibatch.
      comm: Ranks.
      timer: Measures the phases; `add_up` measures its phases itself.
      workers: Number of this rank's workers.
      fill: Writes the terms of this rank's workers.
      add_up: Returns the sum of the gradients of all parts, followed by its loss.
      memory: Leaves of `memory` in an earlier Step, of each rank of that run.
    """
    terms = np.zeros((workers, vectors.length + 1), np.float32)
    done = restore_memory(comm, Memory(None, np.zeros(1, np.int64)), memory)
    for number, (count, parts) in enumerate(timer.waits("input", minibatches), 1):
        sent = comm.bytes_sent
        with timer("gradient"):
            comm.platform.work(fill(terms, parts, count) * comm.size)
        total, measures = add_up(list(terms), int(done.common[0]))
        done = Memory(None, done.common + 1)
        with timer("update"):
            parameters.apply(parameters.put(vectors.unpack(total[:-1])))
        yield Step(
            number=number,
            loss=float(total[-1]),
            params=parameters.collect,
            examples=count,
            seconds=timer.lap(),
            words_sent=(comm.bytes_sent - sent) // terms.itemsize,
            measures=measures,
            state=parameters.state,
            memory=partial(identity, done),
            replicas=True,
        )


def check_workers(comm: CountedComm, workers: int) -> int:
    """Return the number of workers; 0 becomes one per rank."""
    if workers and workers < comm.size:
        raise BadInput(
            f"expected at least one worker for each of {comm.size} ranks, got "
            f"{workers}; pass workers=<{comm.size} or more>"
        )
    return workers or comm.size
