"""Sums of dense gradients over ranks in buckets, and synchronous training with them.

    backward  layer 3 │ layer 2 │ layer 1    a bucket is sent when its gradients are
    wire              └ bucket 0 ┴ bucket 1  complete, while XLA computes the next ones

This is wait-free backpropagation (Poseidon, Zhang 2017). Elements sent per update:
those of all-reduces of all parameters and of one loss.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from functools import partial
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dml.data.feed import Part, feed
from dml.data.shards import bounds
from dml.metrics.noise import Noise
from dml.metrics.timer import Timer
from dml.models.backward import backward, gradient_order
from dml.models.gradient import accumulate, add_scaled
from dml.strategies.parameters import (
    Tree,
    Update,
    check_shards,
    restore_memory,
    split_shards,
)
from dml.types import CountedComm, Grads, Problem, Reducer, Step
from dml.wire.comm.once import once, once_per_call
from dml.wire.reducers.buckets import Bucket, buckets, fill, gradient_views

ALL = ""  # name of all parameters where they are not divided into layers
Named = Iterator[tuple[str, Grads]]


def train_tree(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    *,
    comm: CountedComm,
    timer: Timer,
    reducer: Reducer,
    bucket_mb: float = 0.0,
    accumulate: int = 1,
    shards: int = 0,
    noise: bool = False,
    prefetch: int = 0,
    state: Any = None,
    memory: Any = None,
) -> Iterator[Step]:
    """Train a tree on all ranks in lockstep; see `synchronous`.

    Args:
      problem: Problem to train.
      batches: Indices of each global minibatch.
      update: optax optimizer.
      comm: Ranks.
      timer: Measures the phases.
      reducer: Computes the mean of gradients.
      bucket_mb: Size of a bucket in MiB; 0 sends all gradients at once, after the
        backward pass. Exact sums are bit-identical for all sizes.
      accumulate: Number of microbatches of a shard.
      shards: Number of logical shards, each a term of the sums; 0: one per rank.
      noise: Whether the gradient noise scale is measured, which sends one more element.
      prefetch: Number of minibatches prepared in the background.
      state: State of the optimizer in an earlier Step; None starts anew.
      memory: Leaves of `memory` in an earlier Step, of each rank of that run.
    """
    start = partial(Tree, problem, update, state)
    parameters = copy(once_per_call(comm, "start", start))
    layered = bool(bucket_mb and problem.model and problem.model.layers)
    sums = allocate_buckets(comm, problem, layered, bucket_mb, scalars=1 + noise)
    memories = restore_memory(
        comm, [reducer.init(bucket.layout) for bucket in sums], memory
    )
    shards = check_shards(comm, shards, reducer.reduce_terms is not None)
    terms, reduce = own_terms(comm, reducer, shards, sums)
    scalars = terms[0][-1].buffer[sums[-1].layout.length :]  # loss, square
    scale = Noise() if noise else None
    split = split_shards(comm, shards, accumulate)
    minibatches = feed(problem.take, batches, split, parameters.put, prefetch)
    for number, (count, parts) in enumerate(timer.waits("input", minibatches), 1):
        sent, copied = comm.bytes_sent, 0
        # order matters: the first term is last, and is reduced as its buckets complete
        for term in reversed(range(len(terms))):
            shard = [p for p in parts[term * accumulate :][:accumulate] if p]
            share = share_of(shard, count)
            with timer("gradient"):
                loss, done, factor = start_gradients(
                    problem, parameters.params, shard, count, layered
                )
                comm.platform.work(share * comm.size)
            squares = 0.0
            for n, bucket in enumerate(terms[term]):
                with timer("gradient"):
                    grads = collect(bucket, done)
                with timer("wire"):
                    copied += fill(bucket, grads, factor)
                    if noise:
                        squares += squared_norm(bucket) / (share or 1)
                    if n == len(sums) - 1:
                        own = bucket.buffer[bucket.layout.length :]
                        own[0], own[1:] = factor * float(loss), squares
                    if term == 0:
                        buffers = [each[n].buffer for each in terms]
                        memories[n] = reduce(comm, buffers, memories[n])
        with timer("update"):
            mean, copied_again = join_buckets(sums, layered)
            update_params(comm, parameters, sums, mean)
        measures: dict[str, float] = {"host_copies": copied + copied_again}
        if scale:
            small, large = float(scalars[1]), sum(map(squared_norm, sums))
            measures["noise_scale"] = scale.add(small, large, count / shards, count)
        if reducer.measures:
            measures |= reducer.measures(memories)
        yield Step(
            number=number,
            loss=float(scalars[0]),
            params=parameters.collect,
            examples=count,
            seconds=timer.lap(),
            words_sent=(comm.bytes_sent - sent) // scalars.itemsize,
            measures=measures,
            state=parameters.state,
            memory=partial(list, memories),
            replicas=True,
        )


def own_terms(
    comm: CountedComm, reducer: Reducer, shards: int, sums: Sequence[Bucket]
) -> tuple[list[Sequence[Bucket]], Callable[[CountedComm, list[np.ndarray], Any], Any]]:
    """Return the buckets of each of this rank's terms, and the reduction of a bucket.

    Args:
      comm: Ranks.
      reducer: Computes the mean of gradients.
      shards: Number of logical shards.
      sums: Buckets of the first term, which receive the mean.
    """
    start, stop = bounds(shards, comm.rank, comm.size)
    others = [
        [bucket._replace(buffer=np.zeros_like(bucket.buffer)) for bucket in sums]
        for _ in range(start + 1, stop)
    ]
    if reducer.reduce_terms and shards > comm.size:
        return [sums, *others], reducer.reduce_terms
    return [sums], lambda comm, terms, memory: reducer.reduce(comm, terms[0], memory)


def share_of(parts: Sequence[Part | None], count: int) -> float:
    """Return the share of the parts in the `count` examples of a minibatch."""
    return sum(part.examples for part in parts if part) / count


def allocate_buckets(
    comm: CountedComm, problem: Problem, layered: bool, bucket_mb: float, scalars: int
) -> Sequence[Bucket]:
    """Allocate the buckets of all gradients.

    Args:
      comm: Ranks.
      problem: The problem.
      layered: Whether buckets consist of layers; otherwise one bucket has all.
      bucket_mb: Size of a bucket in MiB.
      scalars: Number of scalars behind the last gradient.
    """
    if layered:
        assert problem.model
        tree, names = problem.params, gradient_order(problem.model)
    else:
        tree, names = {ALL: problem.params}, [ALL]
    return buckets(comm, tree, names, bucket_mb * (1 << 20), scalars=scalars)


def start_gradients(
    problem: Problem, params: Any, parts: Sequence[Part], count: int, layered: bool
) -> tuple[Any, Named, float]:
    """Return the loss, pairs of names and gradients, and a factor to multiply both by.

    The gradients may still be in computation. Of several microbatches only the last
    runs layer by layer; the others are summed before it. Without parts the loss is 0.

    Args:
      problem: The problem.
      params: The parameters.
      parts: Microbatches of this rank's shard.
      count: Number of examples in the global minibatch.
      layered: Whether gradients are computed layer by layer.
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
    summed, sums = accumulate(
        problem.gradient, params, [part.batch for part in before], others
    )
    earlier = sums if layered else {ALL: sums}
    return (
        add_scaled(summed, loss, weight),
        ((name, add_scaled(earlier[name], grads, weight)) for name, grads in done),
        1.0,
    )


def collect(bucket: Bucket, done: Named) -> dict[str, Grads] | None:
    """Copy a bucket's gradients to the host when done; None for an empty shard."""
    grads = dict(islice(done, len(bucket.names)))
    return jax.device_get(grads) if grads else None


def join_buckets(sums: Sequence[Bucket], layered: bool) -> tuple[Grads, int]:
    """Return all gradients as one tree of views, and the number of bytes copied."""
    parts = [gradient_views(bucket) for bucket in sums]
    grads = {name: leaf for part, _ in parts for name, leaf in part.items()}
    return grads if layered else grads[ALL], sum(copied for _, copied in parts)


def update_params(
    comm: CountedComm, parameters: Tree, sums: Sequence[Bucket], grads: Grads
) -> None:
    """Update the parameters; virtual replicas share one computation.

    Args:
      comm: Ranks.
      parameters: The parameters of this rank.
      sums: Buckets with the mean gradients.
      grads: The gradients as a tree.
    """
    if not comm.platform.virtual:
        parameters.apply(parameters.put(grads))
        return

    params, state = parameters.params, parameters.opt_state

    def call() -> tuple[Any, Any]:
        # `apply` donates the memory of the state, which other ranks may still read
        parameters.params, parameters.opt_state = params, jax.tree.map(jnp.copy, state)
        parameters.apply(parameters.put(grads))
        return parameters.params, parameters.opt_state

    bits = [bucket.buffer.tobytes() for bucket in sums]
    key = id(params), id(state), bits
    parameters.params, parameters.opt_state = once(comm, "update", key, call)


def squared_norm(bucket: Bucket) -> float:
    values = bucket.buffer[: bucket.layout.length]
    return float(np.vdot(values, values))
