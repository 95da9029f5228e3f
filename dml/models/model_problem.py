"""A JAX model and its examples as a Problem."""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

from dml.models.gradient import gradient
from dml.types import BadInput, Batch, Model, Params, Problem


def model_problem(
    model: Model,
    params: Params,
    *,
    examples: int,
    take: Callable[[np.ndarray], Batch],
    evaluate: Callable[[Params], Mapping[str, Any]] = lambda params: {},
) -> Problem:
    """Return the problem of the model's loss.

    Args:
      model: The model; its loss is a mean over a batch.
      params: Start value.
      examples: Number of training examples.
      take: indices -> batch of these examples, on the host.
      evaluate: params -> measures by name.

    Raises:
      BadInput: The start value has variables of NNX that a gradient does not train.
    """
    check_trained(params)
    return Problem(
        params,
        examples,
        partial(gradient, model.loss),
        evaluate,
        take,
        model=model,
    )


def check_trained(params: Params) -> None:
    """Raise if params are a state of NNX with more than params."""
    nnx = sys.modules.get("flax.nnx")  # not imported: there are no variables
    if nnx is None:
        return

    def is_variable(node: Any) -> bool:
        return isinstance(node, nnx.Variable)

    for leaf in jax.tree.leaves(params, is_leaf=is_variable):
        if is_variable(leaf) and not isinstance(leaf, nnx.Param):
            raise BadInput(
                f"expected variables of type nnx.Param, got {type(leaf).__name__}; "
                "pass the network to dml.models.nnx_model.nnx_model"
            )
