"""The cross entropy of a large vocabulary, and its gradient, in one pass.

features ── · table + bias ──→ scores ──→ loss
    └── grads ←── probability - 1 at target

Rows are processed in pieces, so that the scores of a piece stay in the processor's
cache. V is the number of tokens of the vocabulary, D the width of a row of features.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dml.models.layers.partition import AXIS, ONE_DEVICE, Partition, offset

MAX_PIECES = 8
MIN_ROWS = 256  # in a piece


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
    partition: Partition = ONE_DEVICE,
) -> jax.Array:
    """Return the mean over rows of -log of the target's probability.

    The gradient, probability - 1 at the target, is computed in the forward pass, one
    piece of rows at a time, so that no array of all rows and all tokens is stored. A
    device with a part of the table computes the scores of its tokens. Devices exchange
    three numbers per row: the largest score, the sum of exp(score - largest score), and
    the target's score. The gradient with respect to the features is then one term of a
    sum over devices.

    Args:
      features_RxD: Rows of features.
      table_VxD: Vectors of the tokens.
      bias_V: Biases of the tokens, or None.
      targets_R: The target token of each row.
      partition: Partition of the table.
    """
    return entropy_and_grads(features_RxD, table_VxD, bias_V, targets_R, partition)[0]


def score_at(scores_RxV: jax.Array, index_R: jax.Array) -> jax.Array:
    """Return the score of each row at its index; 0 if the index is out of bounds."""
    index_Rx1 = jnp.where(index_R < 0, scores_RxV.shape[1], index_R)[:, None]
    return jnp.take_along_axis(
        scores_RxV, index_Rx1, axis=1, mode="fill", fill_value=0
    )[:, 0]


def reduce_over_devices(reduce: Any, values: Any, partition: Partition) -> Any:
    """Reduce over the devices that divide the vocabulary."""
    return values if partition.size == 1 else reduce(values, AXIS)


def entropy_and_grads(
    features_RxD: jax.Array,
    table_VxD: jax.Array,
    bias_V: jax.Array | None,
    targets_R: jax.Array,
    partition: Partition,
) -> tuple[jax.Array, Any]:
    """Return cross_entropy, and its gradients by features, table and bias.

    Args:
      features_RxD: Rows of features.
      table_VxD: Vectors of the tokens.
      bias_V: Biases of the tokens, or None.
      targets_R: The target token of each row.
      partition: Partition of the table.
    """
    targets_R = targets_R - offset(partition, len(table_VxD))
    rows, dtype = len(features_RxD), features_RxD.dtype
    pieces = max(1, min(MAX_PIECES, rows // MIN_ROWS))
    bounds = [rows * piece // pieces for piece in range(pieces + 1)]
    loss, feature_grads, table_grads, bias_grads = [], [], [], []
    for start, end in zip(bounds, bounds[1:], strict=False):
        rows_PxD, targets_P = features_RxD[start:end], targets_R[start:end]
        scores_PxV = logits(rows_PxD, table_VxD, bias_V)
        max_P = reduce_over_devices(jax.lax.pmax, scores_PxV.max(axis=1), partition)
        odds_PxV = jnp.exp(scores_PxV - max_P[:, None])
        sums = odds_PxV.sum(axis=1), score_at(scores_PxV, targets_P)
        sum_P, target_P = reduce_over_devices(jax.lax.psum, sums, partition)
        loss.append((jnp.log(sum_P) + max_P - target_P).sum())
        is_target_PxV = targets_P[:, None] == jnp.arange(len(table_VxD))[None]
        grads_PxV = odds_PxV / (rows * sum_P[:, None]) - is_target_PxV / rows
        bias_grads.append(grads_PxV.sum(axis=0))
        grads_PxV = grads_PxV.astype(dtype)
        feature_grads.append(jnp.dot(grads_PxV, table_VxD.astype(dtype)))
        # Without the barrier XLA fuses this product with the transposition below, and
        # transposes grads_PxV instead of the smaller result.
        table_grads_DxV = jnp.dot(
            rows_PxD.T, grads_PxV, preferred_element_type="float32"
        )
        table_grads.append(jax.lax.optimization_barrier(table_grads_DxV))
    grads = (
        jnp.concatenate(feature_grads),
        sum(table_grads[1:], table_grads[0]).T,
        None if bias_V is None else sum(bias_grads[1:], bias_grads[0]),
    )
    return jnp.stack(loss).sum() / rows, grads


def scale_grads(_: Partition, grads: Any, loss_grad: jax.Array) -> tuple[Any, ...]:
    """Return the gradients of the operands, multiplied by the gradient of the loss."""
    return *jax.tree.map(lambda leaf: leaf * loss_grad.astype(leaf.dtype), grads), None


cross_entropy.defvjp(entropy_and_grads, scale_grads)


def vary_like(array: Any, targets_R: jax.Array) -> jax.Array:
    """Mark the array as varying over the same axes of shard_map as the targets.

    The gradient of a replicated array is then summed over these axes. Functions of jnp
    do this implicitly, a custom_vjp does not. The array gets a 0 added that depends on
    the targets; XLA drops the addition.
    """
    return array + (targets_R[0] * 0).astype(array.dtype)
