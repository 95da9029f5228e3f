"""Synchronous data parallel: every rank has all params and a shard of each minibatch.

       global minibatch
    ┌─────────┼─────────┐
  shard 0   shard 1   shard 2
  gradient  gradient  gradient    each a mean, times its share of the examples
    └──── all-reduce ───┘         in one flat buffer, the loss last
  update    update    update      of equal params by equal grads: replicas stay equal

Words a step: those of the all-reduce over all params and one loss.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import jax
import numpy as np

from dml.data.minibatches import take
from dml.data.shards import shard
from dml.metrics.timer import Timer
from dml.models.gradient import gradient
from dml.types import AllReduce, Batch, CountedComm, Model, Params, Step
from dml.update.dense import Optimizer, apply
from dml.wire.buffers import allocate, layout, pack, unpack


def synchronous(
    model: Model,
    params: Params,
    data: Batch,
    batches: Iterable[np.ndarray],
    optimizer: Optimizer,
    timer: Timer,
    *,
    comm: CountedComm,
    allreduce: AllReduce,
) -> Iterator[Step]:
    """Train as serial does, on comm's ranks; params, data, batches are equal on all."""
    state = optimizer.init(params)
    flat = layout((params, np.float32(0)))
    buffer = allocate(comm, flat.length, np.result_type(*flat.dtypes))
    for number, index in enumerate(batches, 1):
        mine, sent = shard(index, comm.rank, comm.size), comm.bytes_sent
        with timer("gradient", work=len(mine) * comm.size / len(index)):
            part = None
            if len(mine):
                loss, grads = gradient(model.loss, params, take(data, mine))
                part = jax.block_until_ready((grads, loss))
        with timer("wire"):
            fill(buffer, part, len(mine) / len(index))
            allreduce(comm, buffer, op=np.add)
            grads, loss = unpack(buffer, flat)
        with timer("update"):
            params, state = jax.block_until_ready(
                apply(optimizer, grads, state, params)
            )
        words = (comm.bytes_sent - sent) // buffer.itemsize
        yield Step(number, float(loss), params, len(index), timer.lap(), words)


def fill(buffer: np.ndarray, part: Any, weight: float) -> None:
    """Write one rank's term of the global mean; zeros where its shard is empty.

    The weights are count / global count and add up to 1. One rank's is exactly 1.0,
    which changes no bit: so one rank is serial.
    """
    if part is None:
        buffer.fill(0)
    else:
        pack(part, buffer)
        buffer *= weight
