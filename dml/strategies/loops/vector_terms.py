"""Synchronous training on gradient vectors of logical workers: `coded` and `zeno`.

    minibatch ──► gradients of parts ──► terms of workers ──► total ──► update
                  on this rank           exchange and decision

Gradients and terms are vectors; the last element is the loss.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from dml.data.feed import SplitMinibatch
from dml.metrics.timer import Timer
from dml.strategies.loops.parameters import TableParameters, Tree, restore_memory
from dml.strategies.loops.vectors import TableVectors, TreeVectors
from dml.types import BadInput, CountedComm, Memory, Step, identity

# (gradients of parts, earlier updates) -> sum of all parts, and measures; collective
AddUp: TypeAlias = Callable[[np.ndarray, int], tuple[np.ndarray, Mapping[str, float]]]


def train_vectors(
    parameters: Tree | TableParameters,
    vectors: TreeVectors | TableVectors,
    minibatches: Iterable[SplitMinibatch],
    *,
    comm: CountedComm,
    timer: Timer,
    count: int,
    add_up: AddUp,
    memory: Any = None,
) -> Iterator[Step]:
    """Train by sums of gradient vectors; yield a Step after every update.

    Args:
      parameters: Parameters in training.
      vectors: Conversion of gradients to vectors and back.
      minibatches: Number of examples, and this rank's parts, of each minibatch.
      comm: Ranks.
      timer: Measures the phases; `add_up` measures its phases itself.
      count: Number of this rank's parts of a minibatch.
      add_up: Returns the sum of the gradients of all parts of all ranks.
      memory: Leaves of `memory` in an earlier Step, of each rank of that run.
    """
    gradients = np.zeros((count, vectors.length + 1), np.float32)
    done = restore_memory(comm, Memory(None, np.zeros(1, np.int64)), memory)
    for number, (total_examples, parts) in enumerate(
        timer.waits("input", minibatches), 1
    ):
        sent = comm.bytes_sent
        with timer("gradient"):
            for vector, part in zip(gradients, parts, strict=True):
                loss, grads = 0.0, None
                if part:
                    loss, grads = parameters.mean_gradient([part], total_examples)
                vectors.pack(grads, vector[:-1])
                vector[-1] = loss
            examples = sum(part.examples for part in parts if part)
            comm.platform.work(examples / total_examples * comm.size)
        total, measures = add_up(gradients, int(done.common[0]))
        done = Memory(None, done.common + 1)
        with timer("update"):
            parameters.apply(parameters.put(vectors.unpack(total[:-1])))
        yield Step(
            number=number,
            loss=float(total[-1]),
            params=parameters.collect,
            examples=total_examples,
            seconds=timer.lap(),
            words_sent=(comm.bytes_sent - sent) // gradients.itemsize,
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
