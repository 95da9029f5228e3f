"""GRADIENT: a model's loss, params and a batch in, the loss and its gradient out.

Of several microbatches, their mean, summed in their order.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from dml.types import Batch, Grads, Params


# The loss is static, so ranks that share a model (virtual ones) share one compilation.
@partial(jax.jit, static_argnums=0)
def gradient(
    loss: Callable[[Params, Batch], Any], params: Params, batch: Batch
) -> tuple[Any, Grads]:
    """Return loss and gradient; every strategy calls this, so all get equal bits."""
    return jax.value_and_grad(loss)(params, batch)


def accumulated(
    gradient: Callable[[Params, Any], tuple[Any, Grads]],
    params: Params,
    batches: Sequence[Any],
    weights: Sequence[float],
) -> tuple[Any, Grads]:
    """Return the weighted sum of the batches' losses and gradients.

    Products and sums are rounded as in an all-reduce by star: equal bits.
    """
    total: Any = None
    for batch, weight in zip(batches, weights, strict=True):
        total = plus(total, gradient(params, batch), weight)
    return total


def plus(total: Grads | None, grads: Grads, weight: float) -> Grads:
    """Return total + weight * grads, in the memory of total."""
    if weight != 1:
        grads = _scaled(grads, _beside(np.float32(weight), grads))
    return grads if total is None else _added(total, grads)


def _beside(number: Any, tree: Any) -> jax.Array:
    """Put a number where a tree lies: XLA would copy it to a mesh unasked."""
    lies = jax.tree.leaves(tree)[0].sharding
    if len(lies.device_set) == 1:
        return jax.device_put(number)
    whole = NamedSharding(lies.mesh, PartitionSpec())
    parts = [jax.device_put(number, one) for one in lies.addressable_devices]
    return jax.make_array_from_single_device_arrays((), whole, parts)


# Two calls, for in one XLA would round a product and its sum once instead of twice.
@partial(jax.jit, donate_argnums=0)
def _scaled(grads: Grads, weight: Any) -> Grads:
    return jax.tree.map(lambda leaf: leaf * weight.astype(leaf.dtype), grads)


@partial(jax.jit, donate_argnums=0)
def _added(total: Grads, grads: Grads) -> Grads:
    return jax.tree.map(jnp.add, total, grads)
