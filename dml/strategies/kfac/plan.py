"""The dense layers of a model in K-FAC, and the gradients with their curvature."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dml.models.curvature import (
    DenseLayer,
    dense_layers_with_bias,
    gradient_curvature,
)
from dml.strategies.factor_plan import example_layers
from dml.strategies.kfac.state import initial
from dml.strategies.loops.parameters import split_shards
from dml.strategies.loops.term_gradients import Compute, Split, separate_terms
from dml.types import BadInput, Comm, Problem
from dml.wire.plans.curvature import Grid, grid


class KfacPlan(NamedTuple):
    """The dense layers of a model, and their owners and gradient workers."""

    layers: Sequence[DenseLayer]
    grid: Grid


def make_plan(
    problem: Problem, index: np.ndarray, ranks: int, fraction: float
) -> KfacPlan:
    """Return the plan of a problem with a model.

    Args:
      problem: Problem to train.
      index: Indices of examples, of which the first is read.
      ranks: Number of ranks.
      fraction: Fraction of the ranks that are gradient workers of a layer.
    """
    layers = dense_layers_with_bias(example_layers(problem, index), problem.params)
    if not layers:
        raise BadInput(
            "expected a model with dense layers, whose gradients are products of "
            "matrices, for --strategy=kfac, got one without; pass "
            "--strategy=synchronous"
        )
    return KfacPlan(layers, grid([layer.sizes for layer in layers], ranks, fraction))


def initial_curvature(problem: Problem) -> dict[str, Any]:
    """Return the part "curvature" of the `state` of a Step before the first update."""
    return initial(make_plan(problem, np.arange(1), ranks=1, fraction=1).grid)


def term_curvatures(
    comm: Comm, problem: Problem, plan: KfacPlan, shards: int, microbatches: int
) -> tuple[Split, Compute, Compute]:
    """Return how minibatches are divided, and two functions that return terms.

    The first returns gradients, the second pairs of gradients and curvatures.

    Args:
      comm: Ranks.
      problem: The problem.
      plan: The dense layers.
      shards: Number of logical shards of a minibatch.
      microbatches: Number of microbatches of a shard.
    """
    assert problem.model
    gradient = partial(gradient_curvature, problem.model.loss, plan.layers)
    plain, with_curvature = (
        partial(separate_terms, each, microbatches, False)
        for each in (problem, problem._replace(gradient=gradient))
    )
    return split_shards(comm, shards, microbatches), plain, with_curvature
