"""Poseidon (Zhang 2017): factors, a server or an all-reduce for each dense layer.

    backward  layer 3     │ layer 2      │ layer 1
    wire                  └── x3, dy3 ───┴── sum of dw2 ── sum of dw1
                              factors        too many rows for factors

The gradient of a dense layer is a product of two matrices with a row for each example.
HybComm sends these factors (`wire.reducers.sufficient_factors`) where they have fewer
words than the gradient (`wire.costs.factors`), and each rank multiplies the factors of
all ranks. All other gradients are summed in buckets. With layers, the messages of a
layer are sent while XLA computes the gradients of earlier layers.

Elements sent per update, over p ranks: (p-1)·ΣK_r(M + N) for a layer by factors, where
rank r has K_r rows; those of the all-reduce for other parameters and one loss.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from itertools import chain
from typing import Annotated, Any

import jax
import numpy as np

from dml.data.feed import feed
from dml.data.shards import bounds
from dml.metrics.timer import Timer
from dml.models.factors import Factors, multiply, path_name
from dml.strategies.factor_gradients import Computed, rank_gradients
from dml.strategies.factor_plan import SCHEMES, FactorPlan, make_plan
from dml.strategies.loops.bucket_sums import update_once
from dml.strategies.loops.parameters import Tree, Update, split_shards
from dml.types import AllReduce, CountedComm, Grads, Problem, Step
from dml.types.ranges import Count, Number, OneOf, Size, checked
from dml.wire.collectives.sharded_server import server_allreduce
from dml.wire.comm.once import once_per_call
from dml.wire.reducers.buckets import Bucket, buckets, fill, gradient_views
from dml.wire.reducers.sufficient_factors import gather_factors

Pair = tuple[np.ndarray, np.ndarray]  # factors of a kernel, of all ranks


@checked
def poseidon(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    *,
    comm: CountedComm,
    timer: Timer,
    allreduce: AllReduce,
    scheme: Annotated[str, OneOf(SCHEMES)] = "hybrid",
    bucket_mb: Number = 0.0,
    accumulate: Count = 1,
    prefetch: Size = 0,
    state: Any = None,
) -> Iterator[Step]:
    """Train on all ranks in lockstep; yield a Step after every update.

    The exchange of a layer is chosen for the number of examples of the first minibatch.

    Args:
      problem: Problem to train, equal on all ranks, with a model.
      batches: Indices of each global minibatch, equal on all ranks.
      update: optax optimizer.
      comm: Ranks.
      timer: Measures the phases.
      allreduce: Sums the gradients that are not sent by factors.
      scheme: One of `factor_plan.SCHEMES`. "server" adds in rank order, so its bits are
        those of the all-reduce `star` for any number of ranks.
      bucket_mb: Size of a bucket of summed gradients in MiB; factors are sent by layer.
        0 sends all at once, after the backward pass.
      accumulate: Number of microbatches of a rank; their factors are concatenated.
      prefetch: Number of minibatches prepared in the background.
      state: State of the optimizer from the Step to resume from; None initializes it.
    """
    batches = iter(batches)
    first = next(batches, None)
    if first is None:
        return
    parameters = copy(
        once_per_call(comm, "start", partial(Tree, problem, update, state))
    )
    plan = once_per_call(
        comm,
        "plan",
        partial(make_plan, problem, first, comm.size, scheme, bool(bucket_mb)),
    )
    sums = buckets(comm, plan.dense, plan.names, bucket_mb * (1 << 20), scalars=1)
    dense_sum = server_allreduce if scheme == "server" else allreduce
    split = split_shards(comm, comm.size, accumulate)
    minibatches = feed(
        problem.take, chain([first], batches), split, parameters.put, prefetch
    )
    for number, (count, parts) in enumerate(timer.waits("input", minibatches), 1):
        sent = comm.bytes_sent
        with timer("gradient"):
            own = [part for part in parts if part]
            computed = rank_gradients(problem, parameters.params, own, count, plan)
            comm.platform.work(sum(part.examples for part in own) / count * comm.size)
        factors = exchange(comm, timer, plan, sums, computed, dense_sum)
        with timer("update"):
            messages = [bucket.buffer for bucket in sums]
            messages += [matrix for pair in factors.values() for matrix in pair]
            mean = partial(mean_gradient, parameters, sums, factors)
            update_once(comm, parameters, messages, mean)
        yield Step(
            number=number,
            loss=float(sums[-1].buffer[-1]),
            params=parameters.collect,
            examples=count,
            seconds=timer.lap(),
            words_sent=(comm.bytes_sent - sent) // plan.dtype.itemsize,
            measures={"layers_by_factors": len(plan.kernels)},
            state=parameters.state,
            replicas=True,
        )


def exchange(
    comm: CountedComm,
    timer: Timer,
    plan: FactorPlan,
    sums: Sequence[Bucket],
    computed: Computed,
    dense_sum: AllReduce,
) -> dict[str, Pair]:
    """Sum the gradients in buckets; return the factors of all ranks by path.

    Messages are sent in the order of the backward pass, which is equal on all ranks,
    as soon as the gradients of a name, or of a bucket, are complete.

    Args:
      comm: Ranks.
      timer: Measures the phases.
      plan: The exchange of each gradient.
      sums: Buckets of the gradients that are summed.
      computed: Gradients of this rank.
      dense_sum: Sums a bucket.
    """
    limits = [bounds(computed.examples, rank, comm.size) for rank in range(comm.size)]
    examples = [stop - start for start, stop in limits]
    factors: dict[str, Pair] = {}
    for bucket in sums:
        rest: dict[str, Grads] = {}
        for name in bucket.names:
            with timer("gradient"):
                grads, own = jax.device_get(next(computed.done, ({}, {})))
                rest |= grads
            with timer("wire"):
                columns = plan.columns(name)
                rows = {
                    path: [count * plan.kernels[path].rows for count in examples]
                    for path in columns
                }
                factors |= gather_factors(
                    comm, own, columns, rows, computed.factor, plan.dtype
                )
        with timer("wire"):
            fill(bucket, rest or None, computed.factor)
            if bucket is sums[-1]:
                loss = computed.factor * float(computed.loss)
                bucket.buffer[bucket.layout.length :] = loss
            dense_sum(comm, bucket.buffer, op=np.add)
    return factors


def mean_gradient(
    parameters: Tree, sums: Sequence[Bucket], factors: Mapping[str, Pair]
) -> Grads:
    """Return the mean gradient as a tree, with the products of all factors."""
    views: dict[str, Grads] = {}
    for bucket in sums:
        views |= gradient_views(bucket)[0]
    dense = iter(jax.tree.leaves(views))
    paths, tree = jax.tree_util.tree_flatten_with_path(parameters.params)
    leaves = [
        product(*parameters.put(factors[path_name(path)]), leaf.shape)
        if path_name(path) in factors
        else next(dense)
        for path, leaf in paths
    ]
    return jax.tree.unflatten(tree, leaves)


@partial(jax.jit, static_argnums=2)
def product(inputs_KxM: Any, outputs_KxN: Any, shape: tuple[int, ...]) -> jax.Array:
    """Return the gradient of a kernel."""
    return multiply(Factors(inputs_KxM, outputs_KxN), shape)
