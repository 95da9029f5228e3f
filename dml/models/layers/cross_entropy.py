"""The cross entropy of a large vocabulary, and its gradient, in one pass.

features ── · table + bias ──→ scores ──→ loss      a piece of rows at a time,
    └── grads ←── probability - 1 at target         so that it stays in the cache
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dml.models.layers.partition import AXIS, WHOLE, Partition, offset

PIECES, PIECE = 8, 256  # greatest number of pieces, least number of rows in a piece


def logits(
    features_RxD: jax.Array, table_VxD: jax.Array, bias_V: jax.Array | None
) -> jax.Array:
    """Return scores_RxV in float32."""
    table_VxD = table_VxD.astype(features_RxD.dtype)
    scores_RxV = jnp.dot(features_RxD, table_VxD.T, preferred_element_type=jnp.float32)
    return scores_RxV if bias_V is None else scores_RxV + bias_V[None]


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def cross_entropy(
    features_RxD: jax.Array,
    table_VxD: jax.Array,
    bias_V: jax.Array | None,
    targets_R: jax.Array,
    cut: Partition = WHOLE,
) -> jax.Array:
    """Return the mean over rows of -log of the target's probability.

    The gradient, probability - 1 at the target, is computed in the forward pass, a
    piece of rows at a time, so that no array of all rows and all words is stored. A
    device with a part of the table computes the scores of its words. Devices exchange
    three numbers a row: the largest score, the sum of the odds and the target's score.
    The gradient of the features is then a term of the sum over devices.

    Args:
      features_RxD: Rows of features.
      table_VxD: Vectors of the words.
      bias_V: Biases of the words; None: there are none.
      targets_R: The word of each row.
      cut: Partition of the table.
    """
    return entropy_and_grads(features_RxD, table_VxD, bias_V, targets_R, cut)[0]


def at(scores_RxV: jax.Array, index_R: jax.Array) -> jax.Array:
    """Return the number at each row's index, 0 for an index outside the row."""
    index_Rx1 = jnp.where(index_R < 0, scores_RxV.shape[1], index_R)[:, None]
    return jnp.take_along_axis(
        scores_RxV, index_Rx1, axis=1, mode="fill", fill_value=0
    )[:, 0]


def across(reduce: Any, values: Any, cut: Partition) -> Any:
    """Reduce over the devices that divide the words."""
    return values if cut.size == 1 else reduce(values, AXIS)


def entropy_and_grads(
    features_RxD: jax.Array,
    table_VxD: jax.Array,
    bias_V: jax.Array | None,
    targets_R: jax.Array,
    cut: Partition,
) -> tuple[jax.Array, Any]:
    """Return cross_entropy and its gradients by features, table and bias.

    Args:
      features_RxD: Rows of features.
      table_VxD: Vectors of the words.
      bias_V: Biases of the words; None: there are none.
      targets_R: The word of each row.
      cut: Partition of the table.
    """
    targets_R = targets_R - offset(cut, len(table_VxD))
    rows, dtype = len(features_RxD), features_RxD.dtype
    pieces = max(1, min(PIECES, rows // PIECE))
    bounds = [rows * piece // pieces for piece in range(pieces + 1)]
    loss, by_features, by_table, by_bias = [], [], [], []
    for start, end in zip(bounds, bounds[1:], strict=False):
        rows_PxD, targets_P = features_RxD[start:end], targets_R[start:end]
        scores_PxV = logits(rows_PxD, table_VxD, bias_V)
        top_P = across(jax.lax.pmax, scores_PxV.max(axis=1), cut)
        odds_PxV = jnp.exp(scores_PxV - top_P[:, None])
        sums = odds_PxV.sum(axis=1), at(scores_PxV, targets_P)
        sum_P, target_P = across(jax.lax.psum, sums, cut)
        loss.append((jnp.log(sum_P) + top_P - target_P).sum())
        hits_PxV = targets_P[:, None] == jnp.arange(len(table_VxD))[None]
        grads_PxV = odds_PxV / (rows * sum_P[:, None]) - hits_PxV / rows
        by_bias.append(grads_PxV.sum(axis=0))
        grads_PxV = grads_PxV.astype(dtype)
        by_features.append(jnp.dot(grads_PxV, table_VxD.astype(dtype)))
        # XLA would make one product of this and the transposition below, and then
        # transpose the large array instead of the small one.
        by_table_DxV = jnp.dot(rows_PxD.T, grads_PxV, preferred_element_type="float32")
        by_table.append(jax.lax.optimization_barrier(by_table_DxV))
    grads = (
        jnp.concatenate(by_features),
        sum(by_table[1:], by_table[0]).T,
        None if bias_V is None else sum(by_bias[1:], by_bias[0]),
    )
    return jnp.stack(loss).sum() / rows, grads


def scaled(_: Partition, grads: Any, by: jax.Array) -> tuple[Any, ...]:
    """Return the gradients, multiplied by the gradient of the loss."""
    return *jax.tree.map(lambda leaf: leaf * by.astype(leaf.dtype), grads), None


cross_entropy.defvjp(entropy_and_grads, scaled)


def alike(array: Any, targets_R: jax.Array) -> jax.Array:
    """Add a 0 computed from the targets: in shard_map the array then varies as they do.

    jnp's functions do this themselves, so that the gradient is summed; a custom_vjp
    does not. XLA drops the addition.
    """
    return array + (targets_R[0] * 0).astype(array.dtype)
