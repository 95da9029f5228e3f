"""Rounds of local updates between exchanges of values.

rank 0  x─x─x─x┐          ┌x─x─x─x┐
rank 1  x─x─x─x┼ exchange ┼x─x─x─x┼ exchange      x: an update by the rank's shard
rank 2  x─x─x─x┘          └x─x─x─x┘               4 updates in a round
"""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import NamedTuple

import numpy as np

from dml.data.feed import SplitMinibatch, feed
from dml.data.shards import microbatches
from dml.metrics.timer import Timer
from dml.strategies.loops.parameters import TableParameters, Tree
from dml.types import Comm, Problem


class Round(NamedTuple):
    """The updates of a rank in a round.

    Attributes:
      number: Number of updates so far.
      loss: Mean loss over the rank's examples; 0 without examples.
      examples: Number of the rank's examples.
      total: Number of examples of all ranks.
    """

    number: int
    loss: float
    examples: int
    total: int


def local_shards(
    problem: Problem,
    batches: Iterable[np.ndarray],
    parameters: Tree | TableParameters,
    comm: Comm,
    accumulate: int,
    prefetch: int,
) -> Iterator[SplitMinibatch]:
    """Yield this rank's shard of each global minibatch, in microbatches.

    Args:
      problem: Problem to train.
      batches: Indices of each global minibatch, equal on all ranks.
      parameters: Parameters of this rank, on whose device shards are placed.
      comm: Ranks.
      accumulate: Number of microbatches.
      prefetch: Number of minibatches prepared in the background.
    """
    split = partial(microbatches, rank=comm.rank, size=comm.size, parts=accumulate)
    return feed(problem.take, batches, split, parameters.put, prefetch)


def local_rounds(
    shards: Iterator[SplitMinibatch],
    parameters: Tree | TableParameters,
    comm: Comm,
    timer: Timer,
    every: int,
    after: int = 0,
) -> Iterator[Round]:
    """Update this rank's parameters by its shards; yield a Round after each round.

    Args:
      shards: This rank's shard of each minibatch.
      parameters: Parameters of this rank.
      comm: Ranks.
      timer: Measures the phases.
      every: Number of updates in a round.
      after: Number of rounds of one update before the rounds of `every` updates.
    """
    number = 0
    for minibatches in grouped(timer.waits("input", shards), every, after):
        loss_sum, examples, total = 0.0, 0, 0
        for count, parts in minibatches:
            shard = sum(part.examples for part in parts if part)
            number, total = number + 1, total + count
            if not shard:
                continue
            with timer("gradient"):
                loss, grads = parameters.mean_gradient(parts, shard)
                comm.platform.work(shard * comm.size / count)
            with timer("update"):
                parameters.apply(grads)
            loss_sum, examples = loss_sum + loss * shard, examples + shard
        yield Round(number, loss_sum / examples if examples else 0.0, examples, total)


def grouped(
    shards: Iterator[SplitMinibatch], every: int, after: int
) -> Iterator[Iterator[SplitMinibatch]]:
    """Group the minibatches of each round; the last round may be shorter."""
    for number, first in enumerate(shards):
        length = 1 if number < after else every
        yield chain([first], islice(shards, length - 1))
