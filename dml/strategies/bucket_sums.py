"""Sums of dense gradients over ranks in buckets, and synchronous training by them.

    backward  layer 3 │ layer 2 │ layer 1    a bucket is sent when its layers are
    wire              └ bucket 0 ┴ bucket 1  done, while XLA computes the next ones

Wait-free backpropagation (Poseidon, Zhang 2017). Words an update: those of the
all-reduces over all parameters and one loss.
"""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import partial
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dml.data.feed import Part, feed
from dml.data.shards import microbatches
from dml.metrics.noise import Noise
from dml.metrics.timer import Timer
from dml.models.backward import backward, order
from dml.models.gradient import accumulated, plus
from dml.strategies.parameters import Tree, Update, restored
from dml.types import CountedComm, Grads, Problem, Reducer, Step
from dml.wire.comm.once import once
from dml.wire.reducers.buckets import Bucket, buckets, fill, gradient_views

ALL = ""  # the one name of parameters that are not divided into layers
Named = Iterator[tuple[str, Grads]]


def by_buckets(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    *,
    comm: CountedComm,
    timer: Timer,
    reducer: Reducer,
    bucket_mb: float = 0.0,
    accumulate: int = 1,
    noise: bool = False,
    ahead: int = 0,
    state: Any = None,
    memory: Any = None,
) -> Iterator[Step]:
    """Train a tree on all ranks in lockstep; see `synchronous`."""
    start = partial(Tree, problem, update, state)
    now = copy(once(comm, "start", (id(problem.params), id(state)), start))
    layered = bool(bucket_mb and problem.model and problem.model.layers)
    if layered:
        assert problem.model
        tree, names = problem.params, order(problem.model)
    else:
        tree, names = {ALL: problem.params}, [ALL]
    held = buckets(comm, tree, names, bucket_mb * (1 << 20), scalars=1 + noise)
    memories = restored([reducer.init(bucket.layout) for bucket in held], memory)
    scalars = held[-1].buffer[held[-1].layout.length :]  # loss, square
    scale = Noise() if noise else None
    split = partial(microbatches, rank=comm.rank, size=comm.size, parts=accumulate)
    fed = feed(problem.take, batches, split, now.put, ahead)
    for number, (count, parts) in enumerate(timer.waits("input", fed), 1):
        sent = comm.bytes_sent
        mine = [part for part in parts if part]
        share = sum(part.examples for part in mine) / count
        with timer("gradient"):
            loss, done, factor = begin(problem, now.params, mine, count, layered)
            comm.platform.work(share * comm.size)
        squares, copied = 0.0, 0
        for n, bucket in enumerate(held):
            with timer("gradient"):
                grads = collect(bucket, done)
            with timer("wire"):
                copied += fill(bucket, grads, factor)
                if noise:
                    squares += square(bucket) / (share or 1)
                if bucket is held[-1]:
                    scalars[0] = factor * float(loss)
                    scalars[1:] = squares
                memories[n] = reducer.reduce(comm, bucket.buffer, memories[n])
        with timer("update"):
            found, more = whole(held, layered)
            updated(comm, now, held, found)
        measures: dict[str, float] = {"host_copies": copied + more}
        if scale:
            both = float(scalars[1]), sum(map(square, held))
            measures["noise_scale"] = scale.add(*both, count / comm.size, count)
        yield Step(
            number=number,
            loss=float(scalars[0]),
            params=now.collect,
            examples=count,
            seconds=timer.lap(),
            words_sent=(comm.bytes_sent - sent) // scalars.itemsize,
            measures=measures,
            state=now.state,
            memory=partial(list, memories),
            replicas=True,
        )


def begin(
    problem: Problem, params: Any, parts: Sequence[Part], count: int, layered: bool
) -> tuple[Any, Named, float]:
    """Return the loss, names with their gradients, and a factor to multiply both by.

    The gradients may still be in computation. Of several microbatches only the last
    runs layer by layer; the others are summed before it. No parts: a loss of 0.
    """
    if not parts:
        return 0.0, iter(()), 1.0
    *before, last = parts
    if layered:
        assert problem.model
        loss, done = backward(problem.model, params, last.batch)
    else:
        loss, grads = problem.gradient(params, last.batch)
        done = iter([(ALL, grads)])
    *others, weight = [part.examples / count for part in parts]
    if not before:
        return loss, done, weight
    summed, sums = accumulated(
        problem.gradient, params, [part.batch for part in before], others
    )
    earlier = sums if layered else {ALL: sums}
    return (
        plus(summed, loss, weight),
        ((name, plus(earlier[name], grads, weight)) for name, grads in done),
        1.0,
    )


def collect(bucket: Bucket, done: Named) -> dict[str, Grads] | None:
    """Wait for a bucket's gradients, on the host; None where the shard is empty."""
    found = dict(islice(done, len(bucket.names)))
    return jax.device_get(found) if found else None


def whole(held: Sequence[Bucket], layered: bool) -> tuple[Grads, int]:
    """Return views of all gradients as one tree, and the bytes copied again."""
    parts = [gradient_views(bucket) for bucket in held]
    grads = {name: found for part, _ in parts for name, found in part.items()}
    return grads if layered else grads[ALL], sum(copied for _, copied in parts)


def updated(comm: CountedComm, now: Tree, held: Sequence[Bucket], grads: Grads) -> None:
    """Update the parameters; virtual replicas share one computation."""
    if not comm.platform.virtual:
        now.apply(now.put(grads))
        return

    params, state = now.params, now.opt_state

    def call() -> tuple[Any, Any]:
        # apply reuses the memory of a state, which other ranks may still read
        now.params, now.opt_state = params, jax.tree.map(jnp.copy, state)
        now.apply(now.put(grads))
        return now.params, now.opt_state

    bits = [bucket.buffer.tobytes() for bucket in held]
    key = id(params), id(state), bits
    now.params, now.opt_state = once(comm, "update", key, call)


def square(bucket: Bucket) -> float:
    values = bucket.buffer[: bucket.layout.length]
    return float(np.vdot(values, values))
