"""Attention (Vaswani 2017, eq. 1): a weighted mean of all values for each position.

    weights = softmax(queries · keys / √K)
    mixed = weights · values

K is the width of a head. Queries, keys and values are one array. Its axis of heads
comes before the axis of length 3, so that a slice of the last two axes, flattened, has
the queries, keys and values of complete heads.
"""

import math

import jax
import jax.numpy as jnp

MASKED_SCORE = -1e30  # of a masked key, whose weight is then 0; -inf could give NaN


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
        is_visible_LxL = jnp.tri(scores_BxHxLxL.shape[-1], dtype=bool)
        scores_BxHxLxL = jnp.where(
            is_visible_LxL[None, None], scores_BxHxLxL, MASKED_SCORE
        )
    weights_BxHxLxL = jax.nn.softmax(scores_BxHxLxL).astype(values_BxHxLxK.dtype)
    mixed_BxHxLxK = jnp.einsum("bhlm,bhmk->bhlk", weights_BxHxLxL, values_BxHxLxK)
    return mixed_BxHxLxK.swapaxes(1, 2)
