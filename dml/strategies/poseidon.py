"""Poseidon (Zhang 2017): factors, a server or an all-reduce for each dense layer.

    backward  layer 3     │ layer 2      │ layer 1
    wire                  └ x3 dy3 ───── ┴ all-reduce of dw2 ── all-reduce of dw1
              factors pay │ they do not: K(M + N) is too much

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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dml.data.feed import Part, feed
from dml.data.shards import bounds
from dml.metrics.timer import Timer
from dml.models.backward import backward, gradient_order
from dml.models.factors import (
    Factors,
    dense_layers,
    gradient_factors,
    multiply,
    path_name,
    separated,
)
from dml.models.gradient import add_scaled
from dml.strategies.bucket_sums import update_once
from dml.strategies.parameters import Tree, Update, split_shards
from dml.strategies.term_gradients import ALL
from dml.types import AllReduce, BadInput, Batch, CountedComm, Grads, Problem, Step
from dml.wire.collectives.sharded_server import server_allreduce
from dml.wire.comm.once import once_per_call
from dml.wire.costs.factors import Nodes, Sizes, choose
from dml.wire.reducers.buckets import Bucket, buckets, fill, gradient_views
from dml.wire.reducers.sufficient_factors import Columns, gather_factors

# Exchanges of dense layers: the cheapest for each layer; factors for all; sums by the
# all-reduce; sums on servers, of which each rank has one, with an equal part.
SCHEMES = ("hybrid", "factors", "allreduce", "server")
# gradients by name, without those of kernels by factors, and the factors by path
Parted = tuple[dict[str, Grads], dict[str, Factors]]
Pair = tuple[np.ndarray, np.ndarray]  # factors of a kernel, of all ranks


class Computed(NamedTuple):
    """The gradients of a rank for its shard of a minibatch.

    Attributes:
      loss: Mean loss of the shard, divided by `factor` times its share of the examples.
      done: Gradients of each name, in the order of the backward pass; empty for a shard
        without examples.
      factor: Number by which loss and gradients must be multiplied.
      examples: Number of examples of the minibatch.
    """

    loss: Any
    done: Iterator[Parted]
    factor: float
    examples: int


class Plan(NamedTuple):
    """The exchange of each gradient.

    Attributes:
      kernels: Sizes of the kernels that are exchanged by factors, for one example.
      names: Names of parameters in the order of the backward pass.
      dense: The other parameters by name, with None in place of these kernels.
      dtype: Dtype of all messages.
    """

    kernels: Mapping[str, Sizes]
    names: list[str]
    dense: Mapping[str, Any]
    dtype: np.dtype

    def columns(self, name: str) -> dict[str, Columns]:
        """Return the columns of the kernels of a name."""
        return {
            path: Columns(sizes.inputs, sizes.outputs)
            for path, sizes in self.kernels.items()
            if name == ALL or f"{path}/".startswith(f"{name}/")
        }


def poseidon(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    *,
    comm: CountedComm,
    timer: Timer,
    allreduce: AllReduce,
    scheme: str = "hybrid",
    bucket_mb: float = 0.0,
    accumulate: int = 1,
    prefetch: int = 0,
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
      scheme: One of SCHEMES. "server" adds in rank order, so its bits are those of the
        all-reduce `star` for any number of ranks.
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
    plan: Plan,
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


def make_plan(
    problem: Problem, first: np.ndarray, size: int, scheme: str, by_layer: bool
) -> Plan:
    """Choose the exchange of each kernel.

    Args:
      problem: Problem to train.
      first: Indices of the first minibatch.
      size: Number of ranks.
      scheme: One of SCHEMES.
      by_layer: Whether the backward pass runs layer by layer, if the model has layers.
    """
    if scheme not in SCHEMES:
        raise BadInput(
            f"expected a scheme of {', '.join(SCHEMES)}, got {scheme!r}; pass one "
            "of them"
        )
    kernels: dict[str, Sizes] = {}
    if scheme in ("hybrid", "factors"):
        kernels = example_layers(problem, first)
    if scheme == "hybrid":
        most = -(-len(first) // size)  # examples of a rank
        nodes = Nodes(size, size)
        kernels = {
            path: sizes
            for path, sizes in kernels.items()
            if size > 1  # one rank sends nothing
            and choose(sizes._replace(rows=sizes.rows * most), nodes) == "factors"
        }
    paths, tree = jax.tree_util.tree_flatten_with_path(problem.params)
    leaves = [None if path_name(path) in kernels else leaf for path, leaf in paths]
    dense, names = {ALL: jax.tree.unflatten(tree, leaves)}, [ALL]
    assert problem.model
    if by_layer and problem.model.layers:
        dense, names = dense[ALL], gradient_order(problem.model)
    dtype = np.result_type(*(leaf.dtype for _, leaf in paths))
    return Plan(kernels, names, dense, dtype)


def example_layers(problem: Problem, first: np.ndarray) -> dict[str, Sizes]:
    """Return the sizes of kernels with factors for one example.

    Kernels whose number of rows is not proportional to that of examples are left out,
    such as those of a product of two kernels.
    """
    assert problem.model
    loss, example = problem.model.loss, problem.take(first[:1])

    def layers(examples: int) -> dict[str, Sizes]:
        def shape(array: Any) -> jax.ShapeDtypeStruct:
            dtype = jax.dtypes.canonicalize_dtype(np.asarray(array).dtype)
            return jax.ShapeDtypeStruct((examples, *np.shape(array)[1:]), dtype)

        shapes: Batch = jax.tree.map(shape, example)
        return dense_layers(loss, problem.params, shapes)

    one, two = layers(1), layers(2)
    return {
        path: sizes for path, sizes in one.items() if two[path].rows == 2 * sizes.rows
    }


def rank_gradients(
    problem: Problem, params: Any, parts: Sequence[Part], count: int, plan: Plan
) -> Computed:
    """Return the gradients of this rank, which may still be in computation.

    Of several microbatches only the last runs layer by layer. Without examples the loss
    is 0 and there are no gradients.

    Args:
      problem: The problem.
      params: The parameters.
      parts: Microbatches of this rank's shard.
      count: Number of examples in the global minibatch.
      plan: The exchange of each gradient.
    """
    if not parts:
        return Computed(0.0, iter(()), 1.0, count)
    *before, last = parts
    weight = last.examples / count
    loss, done = layer_gradients(problem, params, last.batch, plan)
    if not before:
        return Computed(loss, done, weight, count)
    summed: Any = None
    factors: dict[str, Factors] = {}
    for part in before:
        value, (rest, own) = whole_gradient(problem, params, part.batch, plan)
        share = part.examples / count
        summed = add_scaled(summed, (value, rest), share)
        factors = add_factors(factors, own, share)
    value, rests = summed

    def totals() -> Iterator[Parted]:
        for grads, own in done:
            rest = {
                name: add_scaled(rests[name], grad, weight)
                for name, grad in grads.items()
            }
            yield rest, add_factors(factors, own, weight)

    return Computed(add_scaled(value, loss, weight), totals(), 1.0, count)


def layer_gradients(
    problem: Problem, params: Any, batch: Batch, plan: Plan
) -> tuple[Any, Iterator[Parted]]:
    """Return the loss, and the gradients of each name in the order of the plan."""
    if plan.names == [ALL]:
        loss, whole = whole_gradient(problem, params, batch, plan)
        return loss, iter([whole])
    assert problem.model
    kernels = frozenset(plan.kernels)
    loss, done = backward(problem.model, params, batch, kernels)
    return loss, (separated({name: grads}) for name, grads in done)


def whole_gradient(
    problem: Problem, params: Any, batch: Batch, plan: Plan
) -> tuple[Any, Parted]:
    """Return the loss and all gradients by one program."""
    assert problem.model
    kernels, factors = frozenset(plan.kernels), {}
    if kernels:
        loss, grads, factors = gradient_factors(
            problem.model.loss, params, batch, kernels
        )
    else:  # the program of other strategies, for bit-identical results
        loss, grads = problem.gradient(params, batch)
    return loss, ({ALL: grads} if plan.names == [ALL] else grads, factors)


def add_factors(
    total: Mapping[str, Factors], own: Mapping[str, Factors], weight: float
) -> dict[str, Factors]:
    """Return the factors of total + weight * own: more rows."""
    scale = jax.device_put(np.float32(weight))
    return {path: _add_rows(total.get(path), pair, scale) for path, pair in own.items()}


@jax.jit
def _add_rows(total: Factors | None, own: Factors, weight: jax.Array) -> Factors:
    outputs_KxN = own.outputs_KxN * weight.astype(own.outputs_KxN.dtype)
    scaled = Factors(own.inputs_KxM, outputs_KxN)
    if total is None:
        return scaled
    return jax.tree.map(lambda *rows: jnp.concatenate(rows), total, scaled)


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
