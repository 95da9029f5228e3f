"""Attention (Vaswani 2017, eq. 1): each position takes a weighted mean of all values.

    weights = softmax(queries · keys / √K)
    mixed = weights · values

Queries, keys and values are one array. Its axis of heads comes before that of the
three, so a slice along it consists of complete heads, which are computed independently.
"""

import math

import jax
import jax.numpy as jnp

NEVER = -1e30  # score of weight 0; a row of -inf would become nan


def attention(qkv_BxLxHx3xK: jax.Array, causal: bool) -> jax.Array:
    """Return mixed_BxLxHxK; if causal, no position attends to later positions."""
    queries_BxHxLxK, keys_BxHxLxK, values_BxHxLxK = (
        qkv_BxLxHx3xK[:, :, :, part].swapaxes(1, 2) for part in range(3)
    )
    # float32 for every dtype: softmax sums as many numbers as there are positions
    scores_BxHxLxL = jnp.einsum(
        "bhlk,bhmk->bhlm",
        queries_BxHxLxK,
        keys_BxHxLxK,
        preferred_element_type=jnp.float32,
    ) / math.sqrt(queries_BxHxLxK.shape[-1])
    if causal:
        seen_LxL = jnp.tri(scores_BxHxLxL.shape[-1], dtype=bool)
        scores_BxHxLxL = jnp.where(seen_LxL[None, None], scores_BxHxLxL, NEVER)
    weights_BxHxLxL = jax.nn.softmax(scores_BxHxLxL).astype(values_BxHxLxK.dtype)
    mixed_BxHxLxK = jnp.einsum("bhlm,bhmk->bhlk", weights_BxHxLxL, values_BxHxLxK)
    return mixed_BxHxLxK.swapaxes(1, 2)
