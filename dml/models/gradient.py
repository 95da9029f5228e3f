"""Loss and gradient of a model, and their weighted sum over microbatches."""

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


@partial(jax.jit, static_argnums=(0, 3))
def gradients(
    gradient: Callable[[Params, Any], tuple[Any, Grads]],
    params: Params,
    batch: Any,
    slices: Sequence[tuple[int, int]],
) -> jax.Array:
    """Return gradients of parts of a batch as rows of a matrix, with the loss at last.

    The elements of a row are those of the leaves in order. Bits are equal to those of
    separate calls, because the program repeats the operations of one part; those of
    `vmap` differ.

    Args:
      gradient: (params, batch) -> loss, gradient; of JAX.
      params: The parameters, of one dtype.
      batch: The examples.
      slices: Start and stop of the examples of each part.
    """
    rows = []
    for start, stop in slices:
        part = jax.tree.map(partial(_slice, start, stop), batch)
        loss, grads = gradient(params, part)
        rows.append(
            jnp.concatenate([*map(jnp.ravel, jax.tree.leaves(grads)), loss[None]])
        )
    return jnp.stack(rows)


def _slice(start: int, stop: int, array: jax.Array) -> jax.Array:
    return array[start:stop]


def accumulate(
    gradient: Callable[[Params, Any], tuple[Any, Grads]],
    params: Params,
    batches: Sequence[Any],
    weights: Sequence[float],
) -> tuple[Any, Grads]:
    """Return the weighted sum of the losses and gradients, in the order of batches.

    Products and sums are rounded as in the star all-reduce, so that results are
    bit-identical to those of one rank per batch.

    Args:
      gradient: (params, batch) -> loss, gradient; of JAX or NumPy.
      params: The parameters.
      batches: Microbatches.
      weights: Weight of each microbatch.
    """
    total: Any = None
    for batch, weight in zip(batches, weights, strict=True):
        total = add_scaled(total, gradient(params, batch), weight)
    return total


def add_scaled(total: Grads | None, grads: Grads, weight: float) -> Grads:
    """Return total + weight * grads; the memory of `total` is reused."""
    grads = jax.tree.map(_as_array, grads)
    if weight != 1 and jax.tree.leaves(grads):
        grads = _scale(grads, _replicate_like(np.float32(weight), grads))
    return grads if total is None else _add(total, grads)


def _as_array(leaf: Any) -> jax.Array:
    """Copy a number or a NumPy array, which the next gradient may overwrite."""
    return leaf if isinstance(leaf, jax.Array) else jnp.array(leaf, np.float32)


def _replicate_like(scalar: Any, tree: Any) -> jax.Array:
    """Copy a scalar to the devices of a tree, as XLA would do implicitly."""
    sharding = jax.tree.leaves(tree)[0].sharding
    if len(sharding.device_set) == 1:
        return jax.device_put(scalar)
    replicated = NamedSharding(sharding.mesh, PartitionSpec())
    copies = [jax.device_put(scalar, device) for device in sharding.addressable_devices]
    return jax.make_array_from_single_device_arrays((), replicated, copies)


# Two programs: in one, XLA would fuse product and sum, and round once instead of twice.
@partial(jax.jit, donate_argnums=0)
def _scale(grads: Grads, weight: Any) -> Grads:
    return jax.tree.map(lambda leaf: leaf * weight.astype(leaf.dtype), grads)


@partial(jax.jit, donate_argnums=0)
def _add(total: Grads, grads: Grads) -> Grads:
    return jax.tree.map(jnp.add, total, grads)
