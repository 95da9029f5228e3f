"""One worker without communication: the reference for every other strategy.

minibatch ─► gradient ─► update ─► Step
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from dml.data.feed import feed
from dml.data.shards import shards
from dml.metrics.timer import Timer
from dml.strategies.loops.parameters import Update, make_parameters, mean_loss
from dml.types import Comm, Problem, Step
from dml.types.ranges import Count, Every, Size, checked


@checked
def serial(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    *,
    comm: Comm,
    timer: Timer,
    accumulate: Count = 1,
    every: Every | None = None,
    prefetch: Size = 0,
    state: Any = None,
) -> Iterator[Step]:
    """Train on one rank; yield a Step after every update, or after every epoch.

    Args:
      problem: Problem to train.
      batches: Indices of each minibatch's examples.
      update: optax optimizer for a tree, or rule of rows for a table.
      comm: Communicator of one rank.
      timer: Measures the phases.
      accumulate: Number of parts of a minibatch whose gradients are summed, as those of
        workers would be.
      every: Number of updates in an epoch, after which a Step is yielded; None yields a
        Step after every update.
      prefetch: Number of minibatches prepared in the background.
      state: State of the update in an earlier Step; None starts anew.
    """
    parameters = make_parameters(problem, update, state)
    split = partial(shards, size=accumulate)
    fed = feed(problem.take, batches, split, parameters.put, prefetch)
    losses: list[tuple[float, int]] = []
    for number, (count, parts) in enumerate(timer.waits("input", fed), 1):
        with timer("gradient"):
            loss, grads = parameters.mean_gradient(parts, count)
            comm.platform.work(1)
        with timer("update"):
            parameters.apply(grads)
        losses.append((loss, count))
        if number % (every or 1):
            continue
        yield Step(
            number=number,
            loss=mean_loss(losses),
            params=parameters.collect,
            examples=sum(examples for _, examples in losses),
            seconds=timer.lap(),
            words_sent=0,
            state=parameters.state,
            epoch=every and number // every,
            replicas=True,
        )
        losses = []
