"""Metrics of a model on held-out examples, and the hash of its parameters."""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

from dml.types import Batch, Model, Params

BLOCK = 1024  # examples that are evaluated at once


def evaluate(
    model: Model, batch: Batch, params: Params, *, block: int = BLOCK
) -> dict[str, Any]:
    """Return the model's metrics as numbers, and the hash of params.

    Metrics are means over blocks, weighted by the number of examples of each block.

    Args:
      model: The model.
      batch: Held-out examples.
      params: Params, or a collective function that returns them; where it returns None
        the result is empty.
      block: Number of examples that are evaluated at once.
    """
    collected = params() if callable(params) else params
    if collected is None:
        return {}
    replica = jax.device_put(jax.tree.map(one_replica, collected))
    examples = len(jax.tree.leaves(batch)[0])
    totals: Counter[str] = Counter()
    for start in range(0, examples, block):
        part = jax.tree.map(lambda leaf, at=start: leaf[at : at + block], batch)
        share = min(block, examples - start) / examples
        metrics = jax.device_get(_metrics(model.metrics, replica, jax.device_put(part)))
        totals.update({name: float(value) * share for name, value in metrics.items()})
    return dict(totals) | {"sha256": digest(collected)}


def digest(params: Params) -> str:
    """Return a hash of every bit of params; equal replicas have equal hashes."""
    sha256 = hashlib.sha256()
    for leaf in jax.tree.leaves(params):
        sha256.update(np.asarray(jax.device_get(one_replica(leaf))).tobytes())
    return sha256.hexdigest()


def one_replica(leaf: Any) -> Any:
    """Return one device's copy of a replicated leaf; other leaves are unchanged."""
    if isinstance(leaf, jax.Array) and leaf.sharding.is_fully_replicated:
        return leaf.addressable_data(0)
    return leaf


@partial(jax.jit, static_argnums=0)
def _metrics(
    metrics: Callable[[Params, Batch], Mapping[str, Any]], params: Params, batch: Batch
) -> Mapping[str, Any]:
    return metrics(params, batch)
