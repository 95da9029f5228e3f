"""Gradients of a rank's logical shards, each of which is a term of the reduction.

A term is the gradient of a shard times the shard's share of the minibatch. The terms of
small networks are computed by one call of JAX, others by one call each. The bits are
equal; one call is up to 7 times as fast if a gradient takes less time than its call.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from dml.data.feed import FeedPart
from dml.data.shards import bounds, shard
from dml.models.backward import backward
from dml.models.gradient import accumulate, add_scaled, gradients
from dml.strategies.loops.parameters import split_shards
from dml.types import Comm, Grads, Problem

ALL = ""  # name of all parameters where they are not divided into layers
MAX_LEAVES = 200  # of all terms of one call: the compilation takes 10 ms for each
Named = Iterator[tuple[str, Grads]]


class Term(NamedTuple):
    """The gradient of a logical shard.

    Attributes:
      number: Index among the terms of this rank.
      share: Share of the examples of the minibatch.
      loss: Mean loss of the shard, divided by `factor` times its share.
      done: Names and gradients, in the order of the backward pass; these may still be
        in computation. Empty for a shard without examples.
      factor: Number by which loss and gradients must be multiplied.
    """

    number: int
    share: float
    loss: Any
    done: Named
    factor: float


# indices of a minibatch -> those of this rank's parts
Split = Callable[[np.ndarray], list[np.ndarray]]
# (parameters, parts, examples of the minibatch) -> the terms, last one first
Compute = Callable[[Any, Sequence[FeedPart | None], int], Iterator[Term]]


def term_gradients(
    comm: Comm,
    problem: Problem,
    shards: int,
    microbatches: int,
    layered: bool,
    joint: bool = True,
) -> tuple[Split, Compute]:
    """Return how minibatches are divided, and the gradients of this rank's terms.

    Args:
      comm: Ranks.
      problem: The problem.
      shards: Number of logical shards of a minibatch.
      microbatches: Number of microbatches of a shard; their gradients are accumulated.
      layered: Whether gradients are computed layer by layer.
      joint: Whether one call may compute several terms. It is compiled for a number of
        terms, which changes when ranks die.
    """
    start, stop = bounds(shards, comm.rank, comm.size)
    leaves = len(jax.tree.leaves(problem.params)) * (stop - start)
    joint = joint and stop - start > 1 and microbatches == 1 and not layered
    if joint and problem.model and leaves <= MAX_LEAVES and has_one_dtype(problem):
        own = range(start, stop)
        return partial(own_examples, own, shards), partial(
            joint_terms, problem, own, shards
        )
    return split_shards(comm, shards, microbatches), partial(
        separate_terms, problem, microbatches, layered
    )


def has_one_dtype(problem: Problem) -> bool:
    return len({leaf.dtype for leaf in jax.tree.leaves(problem.params)}) == 1


def own_examples(own: range, shards: int, index: np.ndarray) -> list[np.ndarray]:
    """Return the indices of all logical shards of a rank as one part."""
    return [np.concatenate([shard(index, number, shards) for number in own])]


def joint_terms(
    problem: Problem,
    own: range,
    shards: int,
    params: Any,
    parts: Sequence[FeedPart | None],
    count: int,
) -> Iterator[Term]:
    """Yield the terms, whose gradients are computed by one call.

    Args:
      problem: The problem.
      own: Numbers of this rank's logical shards.
      shards: Number of all logical shards.
      params: The parameters.
      parts: The examples of this rank's shards, as one part.
      count: Number of examples of the minibatch.
    """
    limits = [bounds(count, number, shards) for number in own]
    first, full = limits[0][0], [pair for pair in limits if pair[0] < pair[1]]
    slices = tuple((start - first, stop - first) for start, stop in full)
    rows_VxD = np.empty((0, 0))
    if parts[0]:
        rows_VxD = np.asarray(
            gradients(problem.gradient, params, parts[0].batch, slices)
        )
    for number in reversed(range(len(own))):
        if number >= len(full):  # the last shards of a small minibatch are empty
            yield Term(number, 0.0, 0.0, iter(()), 1.0)
            continue
        start, stop = full[number]
        share, row = (stop - start) / count, rows_VxD[number]
        yield Term(number, share, row[-1], iter([(ALL, row[:-1])]), share)


def separate_terms(
    problem: Problem,
    microbatches: int,
    layered: bool,
    params: Any,
    parts: Sequence[FeedPart | None],
    count: int,
) -> Iterator[Term]:
    """Yield the terms, each computed by a separate call.

    Args:
      problem: The problem.
      microbatches: Number of microbatches of a shard.
      layered: Whether gradients are computed layer by layer.
      params: The parameters.
      parts: Microbatches of this rank's shards, one shard after another.
      count: Number of examples of the minibatch.
    """
    for number in reversed(range(len(parts) // microbatches)):
        own = [part for part in parts[number * microbatches :][:microbatches] if part]
        share = sum(part.examples for part in own) / count
        yield Term(
            number, share, *start_gradients(problem, params, own, count, layered)
        )


def start_gradients(
    problem: Problem, params: Any, parts: Sequence[FeedPart], count: int, layered: bool
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
