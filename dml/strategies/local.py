"""Local SGD (Stich 2019): ranks update independently and average every H updates.

    rank 0  ─x─x─x─x┐       ┌x─x─x─x┐
    rank 1  ─x─x─x─x┼─ mean ┼x─x─x─x┼─ mean      x: an update by the rank's shard
    rank 2  ─x─x─x─x┘       └x─x─x─x┘            H = 4

Post-local SGD (Lin 2020) averages after each of the first updates. Parameters and the
optimizer's moments are averaged, so replicas are equal after an average. With H = 1 and
SGD the method equals `synchronous` except for rounding.

Elements sent per average: those of an all-reduce of parameters, moments and one loss.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np

from dml.metrics.timer import Timer
from dml.strategies.loops.parameters import Update, make_parameters, restore_memory
from dml.strategies.loops.rounds import local_rounds, local_shards
from dml.types import CountedComm, Problem, Reducer, Step, identity
from dml.types.ranges import Count, Every, Size, Updates, checked
from dml.wire.comm.buffers import allocate, layout, pack, unpack


@checked
def local(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    *,
    comm: CountedComm,
    timer: Timer,
    reducer: Reducer,
    every: Every,
    after: Updates = 0,
    accumulate: Count = 1,
    prefetch: Size = 0,
    state: Any = None,
    memory: Any = None,
) -> Iterator[Step]:
    """Train on all ranks; yield a Step after every average.

    Args:
      problem: Problem to train, equal on all ranks.
      batches: Indices of each global minibatch, equal on all ranks.
      update: optax optimizer for a tree, or rule of rows for a table.
      comm: Ranks.
      timer: Measures the phases.
      reducer: Computes the mean of parameters, such as exact(ring_allreduce).
      every: Number of updates between two averages, H.
      after: Number of first updates that are each followed by an average.
      accumulate: Number of microbatches of a rank's shard.
      prefetch: Number of minibatches prepared in the background.
      state: State of the update in an earlier Step; None starts anew.
      memory: Leaves of `memory` in an earlier Step, of each rank of that run.
    """
    parameters = make_parameters(problem, update, state)
    averaged = layout((parameters.averaged(), np.float32(0)))
    buffer = allocate(comm, averaged.length, np.result_type(*averaged.dtypes))
    memory = restore_memory(comm, reducer.init(averaged), memory)
    shards = local_shards(problem, batches, parameters, comm, accumulate, prefetch)
    for done in local_rounds(shards, parameters, comm, timer, every, after):
        sent = comm.bytes_sent
        with timer("wire"):
            mean = np.float32(done.loss)
            share = (
                1 / comm.size if reducer.equal_shares else done.examples / done.total
            )
            pack(jax.device_get((parameters.averaged(), mean)), buffer, share)
            memory = reducer.reduce(comm, buffer, memory)
            averages, loss = unpack(buffer, averaged)
            parameters.assign(averages)
        yield Step(
            number=done.number,
            loss=float(loss),
            params=parameters.collect,
            examples=done.total,
            seconds=timer.lap(),
            words_sent=(comm.bytes_sent - sent) // buffer.itemsize,
            measures=reducer.measures([memory]) if reducer.measures else {},
            state=parameters.state,
            memory=partial(identity, memory),
            replicas=True,
        )
