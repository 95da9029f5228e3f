"""Updates that depend on norms: clipping (Pascanu 2013), trust ratios (You 2017, 2020).

As in optax, but leaves may be sharded in equal slices over an axis of a mesh: then
squares are summed over the axis.
"""

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import optax

Axis: TypeAlias = str | tuple[str, ...] | None


def squares(tree: Any, axis: Axis = None) -> Any:
    """Return each leaf's sum of squares over all its slices, in float32."""
    sums = jax.tree.map(lambda leaf: jnp.sum(jnp.square(jnp.float32(leaf))), tree)
    return sums if axis is None else jax.lax.psum(sums, axis)


def norm(tree: Any, axis: Axis = None) -> jax.Array:
    """Return the norm of all leaves together."""
    return jnp.sqrt(sum(jax.tree.leaves(squares(tree, axis)), jnp.float32(0)))


def clip(limit: float, axis: Axis = None) -> optax.GradientTransformation:
    """Scale gradients so that the norm of all leaves is at most the limit."""

    def update(grads: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        length = norm(grads, axis)
        short = length < limit

        def clipped(leaf: jax.Array) -> jax.Array:
            # divided first, as in optax: equal bits
            return jnp.where(short, leaf, leaf / length.astype(leaf.dtype) * limit)

        return jax.tree.map(clipped, grads), state

    return optax.GradientTransformation(optax.init_empty_state, update)


def trust(coefficient: float, axis: Axis = None) -> optax.GradientTransformation:
    """Scale each leaf's update to `coefficient` times its params' norm, unless 0."""

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        def scaled(leaf: jax.Array, square: jax.Array, params: jax.Array) -> jax.Array:
            is_zero = (square == 0) | (params == 0)
            ratio = coefficient * jnp.sqrt(params) / jnp.sqrt(square)
            return leaf * jnp.where(is_zero, 1.0, ratio).astype(leaf.dtype)

        sums = squares(updates, axis), squares(params, axis)
        return jax.tree.map(scaled, updates, *sums), state

    return optax.GradientTransformation(optax.init_empty_state, update)
