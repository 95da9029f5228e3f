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
from dml.strategies.parameters import Update, begin, mean
from dml.types import Comm, Problem, Step


def serial(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    *,
    comm: Comm,
    timer: Timer,
    accumulate: int = 1,
    every: int | None = None,
    ahead: int = 0,
    state: Any = None,
) -> Iterator[Step]:
    """Train on one rank; yield a Step after every update, or after every epoch.

    problem: what is learned.
    batches: the indices of each minibatch's examples.
    update: an optax optimizer, or a rule of rows.
    comm: a communicator of one rank.
    timer: measures the phases.
    accumulate: parts of a minibatch whose gradients are summed, as workers would.
    every: updates of an epoch; a Step is an epoch. None: a Step is an update.
    ahead: minibatches made in the background.
    state: the update's state in an earlier Step.
    """
    now = begin(problem, update, state)
    split = partial(shards, size=accumulate)
    fed = feed(problem.take, batches, split, now.put, ahead)
    losses: list[tuple[float, int]] = []
    for number, (count, parts) in enumerate(timer.waits("input", fed), 1):
        with timer("gradient"):
            loss, grads = now.mean(parts, count)
            comm.platform.work(1)
        with timer("update"):
            now.apply(grads)
        losses.append((loss, count))
        if number % (every or 1):
            continue
        yield Step(
            number=number,
            loss=mean(losses),
            params=now.collect,
            examples=sum(examples for _, examples in losses),
            seconds=timer.lap(),
            words_sent=0,
            state=now.state,
            epoch=every and number // every,
            replicas=True,
        )
        losses = []
