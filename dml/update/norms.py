"""Updates that depend on norms: clipping (Pascanu 2013), trust ratios (You 2017, 2020).

These are optax's functions for leaves that may be sharded in equal slices over an axis
of a mesh; squares are then summed over the axis.
"""

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import optax

Axis: TypeAlias = str | tuple[str, ...] | None


def squares(tree: Any, axis: Axis = None) -> Any:
    """Return the sum of squares of each leaf over all its slices, in float32."""
    sums = jax.tree.map(lambda leaf: jnp.sum(jnp.square(jnp.float32(leaf))), tree)
    return sums if axis is None else jax.lax.psum(sums, axis)


def norm(tree: Any, axis: Axis = None) -> jax.Array:
    """Return the norm of all leaves together."""
    return jnp.sqrt(sum(jax.tree.leaves(squares(tree, axis)), jnp.float32(0)))


def clip_leaf(leaf: jax.Array, length: jax.Array, limit: Any) -> jax.Array:
    """Return a leaf of gradients whose norm is `length`, scaled to a norm `limit`.

    Gradients with a norm below the limit do not change.
    """
    # order matters: optax divides first, and results must be bit-identical
    scaled = leaf / length.astype(leaf.dtype) * jnp.asarray(limit, leaf.dtype)
    return jnp.where(length < limit, leaf, scaled)


def clip(limit: float, axis: Axis = None) -> optax.GradientTransformation:
    """Scale gradients so that the norm of all leaves is at most the limit."""

    def update(grads: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        length = norm(grads, axis)
        return jax.tree.map(lambda leaf: clip_leaf(leaf, length, limit), grads), state

    return optax.GradientTransformation(optax.init_empty_state, update)


def scale_by_trust_ratio(
    coefficient: float, axis: Axis = None
) -> optax.GradientTransformation:
    """Scale the update of each leaf to the norm `coefficient` times norm(params).

    The update is not scaled if its norm or the norm of the params is 0.
    """

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        def scale_leaf(
            leaf: jax.Array, square: jax.Array, params: jax.Array
        ) -> jax.Array:
            is_zero = (square == 0) | (params == 0)
            ratio = coefficient * jnp.sqrt(params) / jnp.sqrt(square)
            return leaf * jnp.where(is_zero, 1.0, ratio).astype(leaf.dtype)

        sums = squares(updates, axis), squares(params, axis)
        return jax.tree.map(scale_leaf, updates, *sums), state

    return optax.GradientTransformation(optax.init_empty_state, update)
