"""LOG: a model's metrics on held-out examples, and the hash of its parameters."""

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

from dml.types import Batch, Model, Params


def evaluate(model: Model, batch: Batch, params: Params) -> dict[str, Any]:
    """Return the model's metrics as numbers, and the hash of params."""
    metrics = _metrics(model.metrics, params, batch)
    numbers = {name: float(value) for name, value in metrics.items()}
    return numbers | {"sha256": digest(params)}


def digest(params: Params) -> str:
    """Return a hash of every bit of params: equal replicas have equal ones."""
    sha256 = hashlib.sha256()
    for leaf in jax.tree.leaves(params):
        sha256.update(np.asarray(leaf).tobytes())
    return sha256.hexdigest()


@partial(jax.jit, static_argnums=0)
def _metrics(
    metrics: Callable[[Params, Batch], Mapping[str, Any]], params: Params, batch: Batch
) -> Mapping[str, Any]:
    return metrics(params, batch)
