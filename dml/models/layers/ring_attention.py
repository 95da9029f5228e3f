"""Attention over positions that are divided among devices (ring attention, Liu 2023).

    position   0 1 2 3 │ 4 5 6 7 │ 8 9 …       the d-th slice is on device d
              device 0   device 1   device 2

Queries stay on their device; keys and values are sent round the ring. The softmax of a
position is accumulated over rounds, with odds = exp(score - largest score so far): the
sum of odds · values, the sum of odds, and the largest score (Milakov 2018).

Axes: B examples, H heads of width K, L positions of the queries, M of the keys.
Variables `grad_x` are gradients with respect to x.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dml.models.layers.attention import MASKED_SCORE


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
        │            ▼      device d-i, and at the same time sends them to d+1
        └── 3 ◄── 2 ◄┘      backward: the same, and gradients follow their keys

    Cost on p devices, where the keys of a device have n = B·L·H·K elements:
    forward p-1 rounds of 2n elements, keys and values; backward p-1 rounds of 2n
    elements, and p rounds of 2n elements of float32 gradients. A device stores O(n)
    elements, and B·H·L·L scores. Causal attention has the same cost, because the last
    device attends to all keys. The gradient is written by hand, because the transpose
    of the loop would store the keys of all rounds.

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

    def accumulate(carry: Any, keys_and_values: Any, round_index: jax.Array) -> Any:
        mixed_BxHxLxK, max_BxHxL, sum_BxHxL = carry
        keys_BxMxHxK, values_BxMxHxK = keys_and_values
        scores_BxHxLxM = attention_scores(queries_BxLxHxK, keys_BxMxHxK)
        if causal:
            scores_BxHxLxM = mask_future(scores_BxHxLxM, round_index, axis)
        new_max_BxHxL = jnp.maximum(max_BxHxL, scores_BxHxLxM.max(axis=3))
        odds_BxHxLxM = jnp.exp(scores_BxHxLxM - new_max_BxHxL[..., None])
        decay_BxHxL = jnp.exp(max_BxHxL - new_max_BxHxL)
        added_BxHxLxK = product(
            "bhlm,bmhk->bhlk", odds_BxHxLxM.astype(values_BxMxHxK.dtype), values_BxMxHxK
        )
        return (
            mixed_BxHxLxK * decay_BxHxL[..., None] + added_BxHxLxK,
            new_max_BxHxL,
            sum_BxHxL * decay_BxHxL + odds_BxHxLxM.sum(axis=3),
        )

    zeros_BxHxL = jnp.zeros((count, heads, length))
    zeros_BxHxLxK = jnp.zeros((count, heads, length, values_BxLxHxK.shape[3]))
    mixed_BxHxLxK, max_BxHxL, sum_BxHxL = fold_ring(
        accumulate,
        (zeros_BxHxLxK, zeros_BxHxL + MASKED_SCORE, zeros_BxHxL),
        (keys_BxLxHxK, values_BxLxHxK),
        axis,
    )
    mixed_BxLxHxK = (mixed_BxHxLxK / sum_BxHxL[..., None]).swapaxes(1, 2)
    mixed_BxLxHxK = mixed_BxLxHxK.astype(values_BxLxHxK.dtype)
    log_sums_BxHxL = max_BxHxL + jnp.log(sum_BxHxL)
    saved = queries_BxLxHxK, keys_BxLxHxK, values_BxLxHxK, mixed_BxLxHxK, log_sums_BxHxL
    return mixed_BxLxHxK, saved


def _backward(
    causal: bool, axis: str, saved: Any, grad_mixed_BxLxHxK: jax.Array
) -> tuple[jax.Array, ...]:
    """Return the gradients by queries, keys and values (Dao 2022, alg. 4)."""
    queries_BxLxHxK, keys_BxLxHxK, values_BxLxHxK, mixed_BxLxHxK, log_sums_BxHxL = saved
    # softmax: gradient of a score = weight · (gradient of the weight - weighted mean)
    mean_BxHxL = product("blhk,blhk->bhl", grad_mixed_BxLxHxK, mixed_BxLxHxK)

    def accumulate(grads: Any, keys_and_values: Any, round_index: jax.Array) -> Any:
        grad_queries_BxLxHxK, grad_keys_BxMxHxK, grad_values_BxMxHxK = grads
        keys_BxMxHxK, values_BxMxHxK = keys_and_values
        scores_BxHxLxM = attention_scores(queries_BxLxHxK, keys_BxMxHxK)
        if causal:
            scores_BxHxLxM = mask_future(scores_BxHxLxM, round_index, axis)
        weights_BxHxLxM = jnp.exp(scores_BxHxLxM - log_sums_BxHxL[..., None])
        grad_weights_BxHxLxM = product(
            "blhk,bmhk->bhlm", grad_mixed_BxLxHxK, values_BxMxHxK
        )
        grad_scores_BxHxLxM = weights_BxHxLxM * (
            grad_weights_BxHxLxM - mean_BxHxL[..., None]
        )
        grad_scores_BxHxLxM /= math.sqrt(queries_BxLxHxK.shape[3])
        grad_scores_BxHxLxM = grad_scores_BxHxLxM.astype(queries_BxLxHxK.dtype)
        weights_BxHxLxM = weights_BxHxLxM.astype(grad_mixed_BxLxHxK.dtype)
        grad_queries_BxLxHxK += product(
            "bhlm,bmhk->blhk", grad_scores_BxHxLxM, keys_BxMxHxK
        )
        grad_keys_BxMxHxK += product(
            "bhlm,blhk->bmhk", grad_scores_BxHxLxM, queries_BxLxHxK
        )
        grad_values_BxMxHxK += product(
            "bhlm,blhk->bmhk", weights_BxHxLxM, grad_mixed_BxLxHxK
        )
        # Gradients are sent with their keys; after p rounds they are on their device.
        return grad_queries_BxLxHxK, *send_to_next(
            (grad_keys_BxMxHxK, grad_values_BxMxHxK), axis
        )

    inputs = queries_BxLxHxK, keys_BxLxHxK, values_BxLxHxK
    zeros = tuple(jnp.zeros(leaf.shape) for leaf in inputs)
    grads = fold_ring(accumulate, zeros, (keys_BxLxHxK, values_BxLxHxK), axis)
    return tuple(
        grad.astype(leaf.dtype) for grad, leaf in zip(grads, inputs, strict=True)
    )


ring_attention.defvjp(_forward, _backward)


def fold_ring(
    accumulate: Callable[[Any, Any, jax.Array], Any], initial: Any, tree: Any, axis: str
) -> Any:
    """Fold `accumulate` over the trees of all devices; return the last carry.

    On device d, round i uses the tree of device d-i.

    Args:
      accumulate: (carry, tree, index of the round) -> carry.
      initial: Initial carry.
      tree: The tree of this device.
      axis: Axis of the mesh whose devices form the ring.
    """

    def one_round(state: Any, round_index: jax.Array) -> Any:
        carry, tree = state
        received = send_to_next(tree, axis)  # XLA may overlap this with the next line
        return (accumulate(carry, tree, round_index), received), None

    last_round = jax.lax.axis_size(axis) - 1  # its tree is not sent on
    (carry, tree), _ = jax.lax.scan(one_round, (initial, tree), jnp.arange(last_round))
    return accumulate(carry, tree, jnp.asarray(last_round))


def send_to_next(tree: Any, axis: str) -> Any:
    """Send a tree to the next device; return the tree of the previous one."""
    size = jax.lax.axis_size(axis)
    ring = [(device, (device + 1) % size) for device in range(size)]
    return jax.lax.ppermute(tree, axis, ring)


def attention_scores(queries_BxLxHxK: jax.Array, keys_BxMxHxK: jax.Array) -> jax.Array:
    """Return scores_BxHxLxM in float32."""
    scores_BxHxLxM = product("blhk,bmhk->bhlm", queries_BxLxHxK, keys_BxMxHxK)
    return scores_BxHxLxM / math.sqrt(queries_BxLxHxK.shape[3])


def mask_future(
    scores_BxHxLxM: jax.Array, round_index: jax.Array, axis: str
) -> jax.Array:
    """Return the scores; MASKED_SCORE where the key's position is after the query's."""
    length = scores_BxHxLxM.shape[2]
    device = jax.lax.axis_index(axis)
    source = (device - round_index) % jax.lax.axis_size(axis)  # device of the keys
    query_positions_L = device * length + jnp.arange(length)
    key_positions_M = source * length + jnp.arange(length)
    is_visible_LxM = query_positions_L[:, None] >= key_positions_M[None]
    return jnp.where(is_visible_LxM[None, None], scores_BxHxLxM, MASKED_SCORE)


def product(subscripts: str, *operands: jax.Array) -> jax.Array:
    """Return an einsum whose sums are in float32."""
    return jnp.einsum(subscripts, *operands, preferred_element_type=jnp.float32)
