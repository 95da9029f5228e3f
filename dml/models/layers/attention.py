"""GRADIENT: attention (Vaswani 2017, eq. 1): each place takes a mean of all values.

    weights = softmax(queries · keys / √K)      the more alike, the more it takes
    mixed = weights · values

Queries, keys and values come in as one array, what each place has taken goes out. Heads
come before the three: a slice along that axis is whole heads, which need no others.
"""

import math

import jax
import jax.numpy as jnp

NEVER = -1e30  # a score that leaves no weight; -inf would make a row of them nan


def attention(qkv_BxLxHx3xK: jax.Array, causal: bool) -> jax.Array:
    """Return mixed_BxLxHxK; causal: no place sees those after it."""
    queries_BxHxLxK, keys_BxHxLxK, values_BxHxLxK = (
        qkv_BxLxHx3xK[:, :, :, part].swapaxes(1, 2) for part in range(3)
    )
    # float32 whatever comes in: softmax sums as many numbers as there are places
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
