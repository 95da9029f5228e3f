"""A JAX model and its examples as a Problem."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from dml.models.gradient import gradient
from dml.types import Batch, Model, Params, Problem


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
    """
    return Problem(
        params,
        examples,
        partial(gradient, model.loss),
        evaluate,
        take,
        model=model,
    )
