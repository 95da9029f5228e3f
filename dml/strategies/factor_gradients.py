"""Gradients of a rank, by factors for some kernels, in order of the backward pass."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dml.data.feed import FeedPart
from dml.models.backward import backward
from dml.models.factors import Factors, gradient_factors, separated
from dml.models.gradient import add_scaled
from dml.strategies.factor_plan import FactorPlan
from dml.strategies.loops.term_gradients import ALL
from dml.types import Batch, Grads, Problem

# gradients by name, with None in place of kernels by factors; the factors by path
Parted = tuple[dict[str, Grads], dict[str, Factors]]


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


def rank_gradients(
    problem: Problem,
    params: Any,
    parts: Sequence[FeedPart],
    count: int,
    plan: FactorPlan,
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
        value, (rest, own) = full_gradient(problem, params, part.batch, plan)
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
    problem: Problem, params: Any, batch: Batch, plan: FactorPlan
) -> tuple[Any, Iterator[Parted]]:
    """Return the loss, and the gradients of each name in the order of the plan."""
    if plan.names == [ALL]:
        loss, parted = full_gradient(problem, params, batch, plan)
        return loss, iter([parted])
    assert problem.model
    kernels = frozenset(plan.kernels)
    loss, done = backward(problem.model, params, batch, kernels)
    return loss, (separated({name: grads}) for name, grads in done)


def full_gradient(
    problem: Problem, params: Any, batch: Batch, plan: FactorPlan
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
