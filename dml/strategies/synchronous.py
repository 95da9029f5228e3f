"""Synchronous data parallel: every rank has all params and a shard of each minibatch.

       global minibatch
    ┌─────────┼─────────┐
  shard 0   shard 1   shard 2
  gradient  gradient  gradient    each a mean, times its share of the examples
    └──── all-reduce ───┘         in flat buffers, the loss last
  update    update    update      of equal params by equal grads: replicas stay equal

With buckets the backward pass goes layer by layer, and XLA computes the next ones while
a bucket is on the wire ("wait-free backpropagation", Poseidon, Zhang 2017).

Words a step: those of the all-reduces over all params and one loss.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dml.data.feed import feed
from dml.data.shards import microbatches
from dml.metrics.noise import Noise
from dml.metrics.timer import Timer
from dml.models.backward import backward, order
from dml.models.gradient import accumulated, gradient, plus
from dml.strategies.serial import put, shares
from dml.types import (
    AllReduce,
    Batch,
    CountedComm,
    Examples,
    Grads,
    Model,
    Params,
    Step,
)
from dml.update.dense import Optimizer, apply
from dml.wire.buckets import Bucket, buckets, empty, fill
from dml.wire.once import once

ALL = ""  # the one name of params that are not cut into layers
Named = Iterator[tuple[str, Grads]]


def synchronous(
    model: Model,
    params: Params,
    data: Batch | Examples,
    batches: Iterable[np.ndarray],
    optimizer: Optimizer,
    timer: Timer,
    *,
    comm: CountedComm,
    allreduce: AllReduce,
    bucket_mb: float = 0.0,
    accumulate: int = 1,
    noise: bool = False,
    state: Any = None,
    ahead: int = 0,
) -> Iterator[Step]:
    """Train as serial does, on comm's ranks; params, data, batches are equal on all.

    Buckets hold so many MB, which changes no bit; 0 sends all at once, at the end. With
    noise the gradient's noise scale is measured, which sends one number more.
    """
    start = params, state
    params, state = once(
        comm,
        "start",
        tuple(map(id, start)),
        lambda: put((params, optimizer.init(params) if state is None else state)),
    )
    cut = bool(bucket_mb and model.layers)
    tree, names = (params, order(model)) if cut else ({ALL: params}, [ALL])
    held = buckets(comm, tree, names, bucket_mb * (1 << 20), scalars=1 + noise)
    scalars = held[-1].buffer[held[-1].layout.length :]  # loss, square
    scale = Noise() if noise else None
    ours = {"rank": comm.rank, "size": comm.size, "parts": accumulate}
    fed = feed(data, batches, partial(microbatches, **ours), put, ahead)
    for number, (count, parts) in enumerate(timer.waits("input", fed), 1):
        sent = comm.bytes_sent
        parts, weights = shares(parts, count)
        with timer("gradient"):
            loss, done, factor = begin(model, params, parts, weights, cut)
            comm.platform.work(sum(weights) * comm.size)
        squares, copied = 0.0, 0
        for bucket in held:
            with timer("gradient"):
                grads = collect(bucket, done)
            with timer("wire"):
                copied += fill(bucket, grads, factor)
                if noise:
                    squares += square(bucket) / (sum(weights) or 1)
                if bucket is held[-1]:
                    scalars[0] = factor * float(jax.device_get(loss))
                    scalars[1:] = squares
                allreduce(comm, bucket.buffer, op=np.add)
        with timer("update"):
            found, more = whole(held, cut)
            params, state = updated(comm, optimizer, held, found, state, params)
        measures: dict[str, float] = {"host_copies": copied + more}
        if scale:
            both = float(scalars[1]), sum(map(square, held))
            measures["noise_scale"] = scale.add(*both, count / comm.size, count)
        words = (comm.bytes_sent - sent) // scalars.itemsize
        yield Step(
            *(number, float(scalars[0]), params, count, timer.lap(), words),
            measures=measures,
            state=partial(jax.device_get, state),
        )


def begin(
    model: Model,
    params: Params,
    parts: Sequence[Batch],
    weights: Sequence[float],
    cut: bool,
) -> tuple[float, Named, float]:
    """Return the loss, names with their gradients, and the factor of both; or zeros.

    What is not yet computed comes later. Of microbatches only the last is cut: the sum
    of the others is there before.
    """
    if not parts:
        return 0.0, iter(()), 1.0
    *before, last = parts
    if cut:
        loss, done = backward(model, params, last)
    else:
        loss, grads = gradient(model.loss, params, last)
        done = iter([(ALL, grads)])
    if not before:
        return loss, done, weights[-1]
    *others, weight = weights
    lost, sums = accumulated(model.loss, params, before, others)
    earlier = sums if cut else {ALL: sums}
    return (
        plus(lost, loss, weight),
        ((name, plus(earlier[name], grads, weight)) for name, grads in done),
        1.0,
    )


def collect(bucket: Bucket, done: Named) -> dict[str, Grads] | None:
    """Wait for a bucket's gradients, on the host; None where the shard is empty."""
    found = dict(islice(done, len(bucket.names)))
    return jax.device_get(found) if found else None


def whole(held: Sequence[Bucket], cut: bool) -> tuple[Grads, int]:
    """Return views of all gradients as one tree, and bytes that are copied again."""
    parts = [empty(bucket) for bucket in held]
    grads = {name: found for part, _ in parts for name, found in part.items()}
    return grads if cut else grads[ALL], sum(copied for _, copied in parts)


def updated(
    comm: CountedComm,
    optimizer: Optimizer,
    held: Sequence[Bucket],
    grads: Grads,
    state: Any,
    params: Params,
) -> tuple[Params, Any]:
    """Return params and state after an update; virtual replicas share the result."""
    if not comm.platform.virtual:
        return jax.block_until_ready(apply(optimizer, put(grads), state, params))

    def call() -> tuple[Params, Any]:
        # apply reuses the memory of a state, which other ranks may still read
        own = jax.tree.map(jnp.copy, state)
        return jax.block_until_ready(apply(optimizer, put(grads), own, params))

    bits = [bucket.buffer.tobytes() for bucket in held]
    return once(comm, "update", (id(params), id(state), bits), call)


def square(bucket: Bucket) -> float:
    values = bucket.buffer[: bucket.layout.length]
    return float(np.vdot(values, values))
