"""Attention over positions that are divided among devices (ring attention, Liu 2023).

    position   0 1 2 3 │ 4 5 6 7 │ 8 9 …       device d has the d-th positions
              device 0   device 1   device 2

Queries stay; keys and values are passed round the ring. The softmax of a position is
accumulated round by round, with odds = exp(score - largest score so far): the sum of
odds · values, the sum of odds and the largest score (Milakov 2018).
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dml.models.layers.attention import NEVER


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def ring_attention(
    queries_BxLxHxK: jax.Array,
    keys_BxLxHxK: jax.Array,
    values_BxLxHxK: jax.Array,
    causal: bool,
    axis: str = "sequence",
) -> jax.Array:
    """Return mixed_BxLxHxK of a device's positions, inside shard_map.

        ┌─► 0 ──► 1 ─┐      round i = 0 … p-1: device d attends to the keys of
        │            ▼      device d-i, and meanwhile sends them to d+1
        └── 3 ◄── 2 ◄┘      backward: again, with the gradients of the keys

    A device's keys have n = B·L·H·K words. Forward: p-1 rounds of 2n words. Backward:
    p-1 rounds of 2n words, and p rounds of 2n words of float32 gradients. A device
    stores O(n) words and L x L scores, where L is the number of its positions. The
    gradient is written by hand, because the transpose of the loop would store the keys
    of all rounds. Causal attention takes as many rounds: the last device masks no keys.

    Args:
      queries_BxLxHxK: Queries of this device's positions.
      keys_BxLxHxK: Keys of this device's positions.
      values_BxLxHxK: Values of this device's positions.
      causal: Whether a position attends to earlier positions and itself only.
      axis: Axis of the mesh that divides positions.
    """
    return _forward(queries_BxLxHxK, keys_BxLxHxK, values_BxLxHxK, causal, axis)[0]


def _forward(
    queries_BxLxHxK: jax.Array,
    keys_BxLxHxK: jax.Array,
    values_BxLxHxK: jax.Array,
    causal: bool,
    axis: str,
) -> tuple[jax.Array, Any]:
    """Return mixed_BxLxHxK, and the arrays that the gradient needs."""
    count, length, heads, _ = queries_BxLxHxK.shape

    def use(carry: Any, keys_and_values: Any, number: jax.Array) -> Any:
        mixed_BxHxLxK, top_BxHxL, sum_BxHxL = carry
        keys_BxMxHxK, values_BxMxHxK = keys_and_values
        scores_BxHxLxM = scored(queries_BxLxHxK, keys_BxMxHxK)
        if causal:
            scores_BxHxLxM = masked(scores_BxHxLxM, number, axis)
        higher_BxHxL = jnp.maximum(top_BxHxL, scores_BxHxLxM.max(axis=3))
        odds_BxHxLxM = jnp.exp(scores_BxHxLxM - higher_BxHxL[..., None])
        fade_BxHxL = jnp.exp(top_BxHxL - higher_BxHxL)
        more_BxHxLxK = product(
            "bhlm,bmhk->bhlk", odds_BxHxLxM.astype(values_BxMxHxK.dtype), values_BxMxHxK
        )
        return (
            mixed_BxHxLxK * fade_BxHxL[..., None] + more_BxHxLxK,
            higher_BxHxL,
            sum_BxHxL * fade_BxHxL + odds_BxHxLxM.sum(axis=3),
        )

    none_BxHxL = jnp.zeros((count, heads, length))
    none_BxHxLxK = jnp.zeros((count, heads, length, values_BxLxHxK.shape[3]))
    mixed_BxHxLxK, top_BxHxL, sum_BxHxL = rounds(
        use,
        (none_BxHxLxK, none_BxHxL + NEVER, none_BxHxL),
        (keys_BxLxHxK, values_BxLxHxK),
        axis,
    )
    mixed_BxLxHxK = (mixed_BxHxLxK / sum_BxHxL[..., None]).swapaxes(1, 2)
    mixed_BxLxHxK = mixed_BxLxHxK.astype(values_BxLxHxK.dtype)
    logs_BxHxL = top_BxHxL + jnp.log(sum_BxHxL)
    saved = queries_BxLxHxK, keys_BxLxHxK, values_BxLxHxK, mixed_BxLxHxK, logs_BxHxL
    return mixed_BxLxHxK, saved


def _backward(
    causal: bool, axis: str, saved: Any, by_mixed_BxLxHxK: jax.Array
) -> tuple[jax.Array, ...]:
    """Return the gradients of queries, keys and values (Dao 2022, alg. 4)."""
    queries_BxLxHxK, keys_BxLxHxK, values_BxLxHxK, mixed_BxLxHxK, logs_BxHxL = saved
    # softmax: gradient of a score = weight · (gradient of the weight - weighted mean)
    mean_BxHxL = product("blhk,blhk->bhl", by_mixed_BxLxHxK, mixed_BxLxHxK)

    def use(grads: Any, keys_and_values: Any, number: jax.Array) -> Any:
        by_queries_BxLxHxK, by_keys_BxMxHxK, by_values_BxMxHxK = grads
        keys_BxMxHxK, values_BxMxHxK = keys_and_values
        scores_BxHxLxM = scored(queries_BxLxHxK, keys_BxMxHxK)
        if causal:
            scores_BxHxLxM = masked(scores_BxHxLxM, number, axis)
        weights_BxHxLxM = jnp.exp(scores_BxHxLxM - logs_BxHxL[..., None])
        by_weights_BxHxLxM = product(
            "blhk,bmhk->bhlm", by_mixed_BxLxHxK, values_BxMxHxK
        )
        by_scores_BxHxLxM = weights_BxHxLxM * (
            by_weights_BxHxLxM - mean_BxHxL[..., None]
        )
        by_scores_BxHxLxM /= math.sqrt(queries_BxLxHxK.shape[3])
        by_scores_BxHxLxM = by_scores_BxHxLxM.astype(queries_BxLxHxK.dtype)
        weights_BxHxLxM = weights_BxHxLxM.astype(by_mixed_BxLxHxK.dtype)
        by_queries_BxLxHxK += product(
            "bhlm,bmhk->blhk", by_scores_BxHxLxM, keys_BxMxHxK
        )
        by_keys_BxMxHxK += product(
            "bhlm,blhk->bmhk", by_scores_BxHxLxM, queries_BxLxHxK
        )
        by_values_BxMxHxK += product(
            "bhlm,blhk->bmhk", weights_BxHxLxM, by_mixed_BxLxHxK
        )
        # Gradients are passed on with their keys, at last to the keys' device.
        return by_queries_BxLxHxK, *passed((by_keys_BxMxHxK, by_values_BxMxHxK), axis)

    inputs = queries_BxLxHxK, keys_BxLxHxK, values_BxLxHxK
    zeros = tuple(jnp.zeros(leaf.shape) for leaf in inputs)
    grads = rounds(use, zeros, (keys_BxLxHxK, values_BxLxHxK), axis)
    return tuple(by.astype(leaf.dtype) for by, leaf in zip(grads, inputs, strict=True))


ring_attention.defvjp(_forward, _backward)


def rounds(
    use: Callable[[Any, Any, jax.Array], Any], begin: Any, tree: Any, axis: str
) -> Any:
    """Fold `use` over the trees of all devices; return the last carry.

    On device d, round i uses the tree of device d-i.

    Args:
      use: (carry, tree, round) -> carry.
      begin: Initial carry.
      tree: The tree of this device.
      axis: The ring.
    """

    def one_round(state: Any, number: jax.Array) -> Any:
        carry, tree = state
        following = passed(tree, axis)  # before `use`: XLA may overlap both
        return (use(carry, tree, number), following), None

    last = jax.lax.axis_size(axis) - 1
    (carry, tree), _ = jax.lax.scan(one_round, (begin, tree), jnp.arange(last))
    return use(carry, tree, jnp.asarray(last))


def passed(tree: Any, axis: str) -> Any:
    """Send a tree to the next device; return the tree of the previous one."""
    size = jax.lax.axis_size(axis)
    ring = [(device, (device + 1) % size) for device in range(size)]
    return jax.lax.ppermute(tree, axis, ring)


def scored(queries_BxLxHxK: jax.Array, keys_BxMxHxK: jax.Array) -> jax.Array:
    """Return scores_BxHxLxM in float32."""
    scores_BxHxLxM = product("blhk,bmhk->bhlm", queries_BxLxHxK, keys_BxMxHxK)
    return scores_BxHxLxM / math.sqrt(queries_BxLxHxK.shape[3])


def masked(scores_BxHxLxM: jax.Array, number: jax.Array, axis: str) -> jax.Array:
    """Return scores, with NEVER where the key's position is after the query's."""
    length = scores_BxHxLxM.shape[2]
    device = jax.lax.axis_index(axis)
    source = (device - number) % jax.lax.axis_size(axis)  # device of the keys
    before_L, before_M = (n * length + jnp.arange(length) for n in (device, source))
    seen_LxM = before_L[:, None] >= before_M[None]
    return jnp.where(seen_LxM[None, None], scores_BxHxLxM, NEVER)


def product(subscripts: str, *operands: jax.Array) -> jax.Array:
    """Return an einsum whose sums are in float32."""
    return jnp.einsum(subscripts, *operands, preferred_element_type=jnp.float32)
