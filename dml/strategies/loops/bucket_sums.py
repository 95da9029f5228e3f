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

from dml.data.feed import feed
from dml.data.shards import bounds
from dml.metrics.noise import Noise
from dml.metrics.timer import Timer
from dml.models.backward import gradient_order
from dml.strategies.loops.parameters import (
    Tree,
    Update,
    check_shards,
    restore_memory,
)
from dml.strategies.loops.term_gradients import ALL, Named, term_gradients
from dml.types import CountedComm, Grads, Problem, Reducer, Step, identity, no_op
from dml.types.ranges import Count, Number, Size, checked
from dml.wire.comm.once import once, once_per_call
from dml.wire.reducers.buckets import Bucket, buckets, fill, gradient_views


@partial(checked, name="synchronous")
def train_tree(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    *,
    comm: CountedComm,
    timer: Timer,
    reducer: Reducer,
    bucket_mb: Number = 0.0,
    accumulate: Count = 1,
    shards: Size = 0,
    noise: bool = False,
    prefetch: Size = 0,
    commit: Callable[[], object] = no_op,
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
      commit: Called before every update; see `synchronous`.
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
    split, compute = term_gradients(
        comm, problem, shards, accumulate, layered, joint=commit is no_op
    )
    minibatches = feed(problem.take, batches, split, parameters.put, prefetch)
    for number, (count, parts) in enumerate(timer.waits("input", minibatches), 1):
        sent, copied = comm.bytes_sent, 0
        # order matters: the first term is last, and is reduced as its buckets complete
        computed = compute(parameters.params, parts, count)
        for term in timer.waits("gradient", computed):
            with timer("gradient"):
                comm.platform.work(term.share * comm.size)
            squares = 0.0
            for n, bucket in enumerate(terms[term.number]):
                with timer("gradient"):
                    grads = collect(bucket, term.done)
                with timer("wire"):
                    copied += fill(bucket, grads, term.factor)
                    if noise:
                        squares += squared_norm(bucket) / (term.share or 1)
                    if n == len(sums) - 1:
                        own = bucket.buffer[bucket.layout.length :]
                        own[0], own[1:] = term.factor * float(term.loss), squares
                    if term.number == 0:
                        buffers = [each[n].buffer for each in terms]
                        memories[n] = reduce(comm, buffers, memories[n])
                        if n == len(sums) - 1:
                            commit()
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
    messages = [bucket.buffer for bucket in sums]
    update_once(comm, parameters, messages, partial(identity, grads))


def update_once(
    comm: CountedComm,
    parameters: Tree,
    messages: Sequence[np.ndarray],
    mean: Callable[[], Grads],
) -> None:
    """Update the parameters; virtual replicas share one computation.

    Args:
      comm: Ranks.
      parameters: The parameters of this rank.
      messages: Arrays on which the mean gradient depends.
      mean: () -> the mean gradient as a tree.
    """
    if not comm.platform.virtual:
        parameters.apply(parameters.put(mean()))
        return

    params, state = parameters.params, parameters.opt_state

    def call() -> tuple[Any, Any]:
        # `apply` donates the memory of the state, which other ranks may still read
        parameters.params, parameters.opt_state = params, jax.tree.map(jnp.copy, state)
        parameters.apply(parameters.put(mean()))
        return parameters.params, parameters.opt_state

    bits = [message.tobytes() for message in messages]
    key = id(params), id(state), bits
    parameters.params, parameters.opt_state = once(comm, "update", key, call)


def squared_norm(bucket: Bucket) -> float:
    values = bucket.buffer[: bucket.layout.length]
    return float(np.vdot(values, values))
