"""UPDATE that looks at norms: clipping (Pascanu 2013), trust ratios (You 2017, 2020).

As optax's own, but each leaf may also lie in equal slices over an axis of a mesh: then
the squares are summed over it.
"""

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import optax

Axis: TypeAlias = str | tuple[str, ...] | None


def squares(tree: Any, axis: Axis = None) -> Any:
    """Return each leaf's sum of squares, all of its slices together, in float32."""
    sums = jax.tree.map(lambda leaf: jnp.sum(jnp.square(jnp.float32(leaf))), tree)
    return sums if axis is None else jax.lax.psum(sums, axis)


def norm(tree: Any, axis: Axis = None) -> jax.Array:
    """Return the norm of all leaves together."""
    return jnp.sqrt(sum(jax.tree.leaves(squares(tree, axis)), jnp.float32(0)))


def clip(limit: float, axis: Axis = None) -> optax.GradientTransformation:
    """Shorten gradients whose norm, of all leaves together, is above the limit."""

    def update(grads: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        length = norm(grads, axis)
        short = length < limit

        def clipped(leaf: jax.Array) -> jax.Array:
            # divided first: optax's bits
            return jnp.where(short, leaf, leaf / length.astype(leaf.dtype) * limit)

        return jax.tree.map(clipped, grads), state

    return optax.GradientTransformation(optax.init_empty_state, update)


def trust(coefficient: float, axis: Axis = None) -> optax.GradientTransformation:
    """Make each leaf's update that part of its params' norm; 0 norms change nothing."""

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        def scaled(leaf: jax.Array, square: jax.Array, whole: jax.Array) -> jax.Array:
            nothing = (square == 0) | (whole == 0)
            ratio = coefficient * jnp.sqrt(whole) / jnp.sqrt(square)
            return leaf * jnp.where(nothing, 1.0, ratio).astype(leaf.dtype)

        sums = squares(updates, axis), squares(params, axis)
        return jax.tree.map(scaled, updates, *sums), state

    return optax.GradientTransformation(optax.init_empty_state, update)
