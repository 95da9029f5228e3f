"""Loss and gradient of a model; the mean over microbatches, summed in their order."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from dml.types import Batch, Grads, Params


# The loss is a static argument: virtual ranks that share a model compile it once.
@partial(jax.jit, static_argnums=0)
def gradient(
    loss: Callable[[Params, Batch], Any], params: Params, batch: Batch
) -> tuple[Any, Grads]:
    """Return loss and gradient; all strategies call it, for bit-identical results."""
    return jax.value_and_grad(loss)(params, batch)


def accumulated(
    gradient: Callable[[Params, Any], tuple[Any, Grads]],
    params: Params,
    batches: Sequence[Any],
    weights: Sequence[float],
) -> tuple[Any, Grads]:
    """Return the weighted sum of the batches' losses and gradients.

    Products and sums are rounded as in the star all-reduce, so that results are
    bit-identical.

    Args:
      gradient: (params, batch) -> loss, gradient.
      params: The parameters.
      batches: Microbatches.
      weights: Weight of each microbatch.
    """
    total: Any = None
    for batch, weight in zip(batches, weights, strict=True):
        total = plus(total, gradient(params, batch), weight)
    return total


def plus(total: Grads | None, grads: Grads, weight: float) -> Grads:
    """Return total + weight * grads; the memory of `total` is reused."""
    if weight != 1:
        grads = _scaled(grads, _placed_like(np.float32(weight), grads))
    return grads if total is None else _added(total, grads)


def _placed_like(number: Any, tree: Any) -> jax.Array:
    """Copy a number to the devices of a tree, as XLA would do implicitly."""
    sharding = jax.tree.leaves(tree)[0].sharding
    if len(sharding.device_set) == 1:
        return jax.device_put(number)
    replicated = NamedSharding(sharding.mesh, PartitionSpec())
    parts = [jax.device_put(number, device) for device in sharding.addressable_devices]
    return jax.make_array_from_single_device_arrays((), replicated, parts)


# Two calls: in one, XLA would round a product and its sum once instead of twice.
@partial(jax.jit, donate_argnums=0)
def _scaled(grads: Grads, weight: Any) -> Grads:
    return jax.tree.map(lambda leaf: leaf * weight.astype(leaf.dtype), grads)


@partial(jax.jit, donate_argnums=0)
def _added(total: Grads, grads: Grads) -> Grads:
    return jax.tree.map(jnp.add, total, grads)
