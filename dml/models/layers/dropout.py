"""Dropout (Srivastava 2014) whose masks belong to tokens, not to devices.

    example    t0  t1  t2  t3      a training batch has a random key per token
    keys       k0  k1  k2  k3      a mask depends on the key of a token and the place
    devices    ──0───  ──1───      shards of examples or positions have their own keys

A mask depends on the seed, the example's draw number, the position and the place.
Devices, ranks, microbatches and recomputations of a layer therefore have equal masks.
Batches without keys, as in evaluation, have no dropout.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dml.models.layers.partition import Partition, slice_positions
from dml.types import KeyedTokens

PLACES = 2  # dropouts of a layer: after attention, after the feed-forward
Drop = Callable[[jax.Array, int], jax.Array]  # rows, place in the layer -> rows


def keep_all(rows_RxD: jax.Array, place: int) -> jax.Array:
    """Return the rows: dropout of rate 0."""
    return rows_RxD


def dropout_of(inputs: Any, layer: int, rate: float, partition: Partition) -> Drop:
    """Return the dropout of one layer for a batch.

    Args:
      inputs: Inputs of the batch; dropout is applied if they are KeyedTokens.
      layer: Number of the layer, from 0.
      rate: Probability that an element is 0.
      partition: Partition of the network; rows are those of this device.
    """
    if not rate or not isinstance(inputs, KeyedTokens):
        return keep_all
    keys_R = slice_positions(inputs.keys, partition).reshape(-1)

    def drop(rows_RxD: jax.Array, place: int) -> jax.Array:
        keep_RxD = masks(keys_R, layer * PLACES + place, rate, rows_RxD.shape[1])
        return jnp.where(keep_RxD, rows_RxD / (1 - rate), 0).astype(rows_RxD.dtype)

    return drop


def tokens_of(inputs: Any) -> jax.Array:
    """Return the tokens of a batch, with or without keys."""
    return inputs.tokens if isinstance(inputs, KeyedTokens) else inputs


def masks(keys_R: jax.Array, place: int, rate: float, width: int) -> jax.Array:
    """Return RxD booleans, true with probability 1 - rate.

    The two words of a Threefry key are the key of a row and the place.

    Args:
      keys_R: Random uint32 of each row.
      place: Number of the dropout in the network.
      rate: Probability that an element is 0.
      width: Number of elements of a row.
    """
    pairs_Rx2 = jnp.stack([keys_R, jnp.full_like(keys_R, place)], axis=1)
    keys = jax.random.wrap_key_data(pairs_Rx2, impl="threefry2x32")
    return jax.vmap(partial(jax.random.bernoulli, p=1 - rate, shape=(width,)))(keys)
