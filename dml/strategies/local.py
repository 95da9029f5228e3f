"""Local SGD (Stich 2019): ranks update alone and average their parameters at times.

    rank 0  ─x─x─x─x┐       ┌x─x─x─x┐
    rank 1  ─x─x─x─x┼─ mean ┼x─x─x─x┼─ mean      x: an update by the rank's own shard
    rank 2  ─x─x─x─x┘       └x─x─x─x┘            H = 4

Post-local SGD (Lin 2020) averages after every update at first. Parameters and the
optimizer's moments are averaged alike, so that replicas are equal afterwards; with
H = 1 and SGD the method is `synchronous` but for rounding.

Words per average: those of the all-reduce over parameters, moments and one loss.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any

import jax
import numpy as np

from dml.data.feed import Fed, feed
from dml.data.shards import microbatches
from dml.metrics.timer import Timer
from dml.strategies.parameters import Update, begin, restored
from dml.types import BadInput, CountedComm, Problem, Reducer, Step, itself
from dml.wire.comm.buffers import allocate, layout, pack, unpack


def local(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    *,
    comm: CountedComm,
    timer: Timer,
    reducer: Reducer,
    every: int,
    after: int = 0,
    accumulate: int = 1,
    ahead: int = 0,
    state: Any = None,
    memory: Any = None,
) -> Iterator[Step]:
    """Train on all ranks; yield a Step after every average.

    problem, batches: equal on all ranks.
    update: an optax optimizer, or a rule of rows.
    comm: the ranks.
    timer: measures the phases.
    reducer: how parameters become their mean, such as exact(ring_allreduce).
    every: updates between two averages.
    after: first updates that are averaged one by one.
    accumulate: microbatches of a rank's shard.
    ahead: minibatches made in the background.
    state: the update's state in an earlier Step.
    memory: the leaves of an earlier Step's memory on this rank.
    """
    if every < 1 or after < 0:
        raise BadInput(
            f"expected averages after 1 update or more, got {every=}, {after=}; pass "
            "--local_every=<1 or more>"
        )
    now = begin(problem, update, state)
    lies = layout((now.averaged(), np.float32(0)))
    buffer = allocate(comm, lies.length, np.result_type(*lies.dtypes))
    memory = restored(reducer.init(lies), memory)
    split = partial(microbatches, rank=comm.rank, size=comm.size, parts=accumulate)
    fed = feed(problem.take, batches, split, now.put, ahead)
    number = 0
    for some in rounds(timer.waits("input", fed), every, after):
        lost, seen, total, sent = 0.0, 0, 0, comm.bytes_sent
        for count, parts in some:
            here = sum(part.examples for part in parts if part)
            number, total = number + 1, total + count
            if not here:
                continue
            with timer("gradient"):
                loss, grads = now.mean(parts, here)
                comm.platform.work(here * comm.size / count)
            with timer("update"):
                now.apply(grads)
            lost, seen = lost + loss * here, seen + here
        with timer("wire"):
            mean = np.float32(lost / seen if seen else 0)
            pack(jax.device_get((now.averaged(), mean)), buffer, seen / total)
            memory = reducer.reduce(comm, buffer, memory)
            averages, loss = unpack(buffer, lies)
            now.assign(averages)
        yield Step(
            number=number,
            loss=float(loss),
            params=now.collect,
            examples=total,
            seconds=timer.lap(),
            words_sent=(comm.bytes_sent - sent) // buffer.itemsize,
            state=now.state,
            memory=partial(itself, memory),
            replicas=True,
        )


def rounds(fed: Iterator[Fed], every: int, after: int) -> Iterator[Iterator[Fed]]:
    """Divide minibatches into groups between two averages; the last may be shorter."""
    for number, first in enumerate(fed):
        length = 1 if number < after else every
        yield chain([first], islice(fed, length - 1))
