"""Attention over positions that are divided among devices (ring attention, Liu 2023).

    position   0 1 2 3 │ 4 5 6 7 │ 8 9 …       device d has the d-th positions
              device 0   device 1   device 2

Queries stay; keys and values travel round the ring. The softmax of a position is summed
up on the way: the sum of odds · values, the sum of odds and the largest score (Milakov
2018).
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
        └── 3 ◄── 2 ◄┘      backward: again, and the keys' gradients with them

    With n = B·L·H·K words of a device's keys: p-1 rounds of 2n words forward, then p-1
    of 2n and p of 2n (float32) backward. A device stores O(n) and L x L scores, L being
    the number of its positions. The transpose of the loop would store the keys of all
    rounds: the gradient is therefore written by hand. With causal attention a round of
    masked keys takes as long as others, as the last device masks none of them.
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

    def use(taken: Any, here: Any, number: jax.Array) -> Any:
        mixed_BxHxLxK, top_BxHxL, sum_BxHxL = taken
        keys_BxMxHxK, values_BxMxHxK = here
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
    given = queries_BxLxHxK, keys_BxLxHxK, values_BxLxHxK
    return mixed_BxLxHxK, (*given, mixed_BxLxHxK, top_BxHxL + jnp.log(sum_BxHxL))


def _backward(
    causal: bool, axis: str, kept: Any, by_mixed_BxLxHxK: jax.Array
) -> tuple[jax.Array, ...]:
    """Return the gradients of queries, keys and values (Dao 2022, alg. 4)."""
    queries_BxLxHxK, keys_BxLxHxK, values_BxLxHxK, mixed_BxLxHxK, logs_BxHxL = kept
    # softmax: a score's gradient is its weight · (its own - the mean over weights)
    mean_BxHxL = product("blhk,blhk->bhl", by_mixed_BxLxHxK, mixed_BxLxHxK)

    def use(grads: Any, here: Any, number: jax.Array) -> Any:
        by_queries_BxLxHxK, by_keys_BxMxHxK, by_values_BxMxHxK = grads
        keys_BxMxHxK, values_BxMxHxK = here
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
        # They travel with their keys, and after the last round to the keys' device.
        return by_queries_BxLxHxK, *passed((by_keys_BxMxHxK, by_values_BxMxHxK), axis)

    given = queries_BxLxHxK, keys_BxLxHxK, values_BxLxHxK
    zeros = tuple(jnp.zeros(leaf.shape) for leaf in given)
    grads = rounds(use, zeros, (keys_BxLxHxK, values_BxLxHxK), axis)
    return tuple(by.astype(leaf.dtype) for by, leaf in zip(grads, given, strict=True))


ring_attention.defvjp(_forward, _backward)


def rounds(
    use: Callable[[Any, Any, jax.Array], Any], begin: Any, here: Any, axis: str
) -> Any:
    """Return the fold of `use` over the trees of all devices.

    In round i it is the tree of device d-i; round 0 is the device's own.
    """

    def one(carry: Any, number: jax.Array) -> Any:
        made, here = carry
        there = passed(here, axis)  # before `use`: XLA may do both at once
        return (use(made, here, number), there), None

    last = jax.lax.axis_size(axis) - 1
    (made, here), _ = jax.lax.scan(one, (begin, here), jnp.arange(last))
    return use(made, here, jnp.asarray(last))


def passed(tree: Any, axis: str) -> Any:
    """Send a tree to the next device; return that of the device before."""
    size = jax.lax.axis_size(axis)
    ring = [(device, (device + 1) % size) for device in range(size)]
    return jax.lax.ppermute(tree, axis, ring)


def scored(queries_BxLxHxK: jax.Array, keys_BxMxHxK: jax.Array) -> jax.Array:
    """Return scores_BxHxLxM in float32."""
    scores_BxHxLxM = product("blhk,bmhk->bhlm", queries_BxLxHxK, keys_BxMxHxK)
    return scores_BxHxLxM / math.sqrt(queries_BxLxHxK.shape[3])


def masked(scores_BxHxLxM: jax.Array, number: jax.Array, axis: str) -> jax.Array:
    """Return scores; they are NEVER for keys at later positions than the query."""
    length = scores_BxHxLxM.shape[2]
    here = jax.lax.axis_index(axis)
    there = (here - number) % jax.lax.axis_size(axis)  # whose keys they are
    before_L, before_M = (one * length + jnp.arange(length) for one in (here, there))
    seen_LxM = before_L[:, None] >= before_M[None]
    return jnp.where(seen_LxM[None, None], scores_BxHxLxM, NEVER)


def product(what: str, *operands: jax.Array) -> jax.Array:
    """Return an einsum whose sums are in float32."""
    return jnp.einsum(what, *operands, preferred_element_type=jnp.float32)
