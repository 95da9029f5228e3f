"""The partition of a transformer over devices (Megatron), and of its positions.

    kernels    qkv, up: by columns ║ heads, hidden units      enter: f    leave: g
               out, down: by rows  ═ the same heads and units
    tables     tokens, bias: by words                         the rest is replicated
    positions  over the axis `sequence`: attention is a ring, see ring_attention.py

On one device `enter` and `leave` are the identity: the network is dense.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dml.types import BadInput
from dml.wire.mesh.conjugate import (
    copy_to_devices,
    gather_slices,
    sum_into_slices,
    sum_over_devices,
)

AXIS = "tensor"
RING = "sequence"
Rows = Callable[[jax.Array, int], jax.Array]  # (rows_RxD, number of examples) -> rows


def same(rows_RxD: jax.Array, count: int) -> jax.Array:
    """Return the rows: both operators of a network on one device."""
    return rows_RxD


class Partition(NamedTuple):
    """The slice of each layer on one device, and its operators; by default, all of it.

    Attributes:
      size: Number of devices of `tensor`.
      sequence: Whether `tensor` also slices activations between layers by positions.
      enter: Operator f, before a layer's kernels that are divided by columns.
      leave: Operator g, after a layer's kernels that are divided by rows.
      ring: Number of devices of `sequence`, each with consecutive positions.
    """

    size: int = 1
    sequence: bool = False
    enter: Rows = same
    leave: Rows = same
    ring: int = 1


WHOLE = Partition()


def partition_over(size: int, sequence: bool = False, ring: int = 1) -> Partition:
    """Return the partition over `size` devices of `tensor` and `ring` of `sequence`."""
    if size == 1:
        return Partition(ring=ring)
    operators = (joined, parted) if sequence else (copied, added)
    return Partition(size, sequence, *operators, ring)


def check_divisible(name: str, count: int, size: int) -> None:
    """Raise BadInput if devices cannot have equal shares."""
    if count % size:
        more = count + -count % size
        raise BadInput(
            f"expected {name} to be divisible by tensor={size}, got {count}; pass "
            f"{more}, or a size of tensor that divides {count}"
        )


def copied(rows_RxD: jax.Array, count: int) -> jax.Array:
    """Return the rows; the transpose sums gradients over devices: operator f."""
    return copy_to_devices(rows_RxD, AXIS)


def added(rows_RxD: jax.Array, count: int) -> jax.Array:
    """Return the sum over devices: operator g."""
    return sum_over_devices(rows_RxD, AXIS)


def joined(rows_RxD: jax.Array, count: int) -> jax.Array:
    """Return all positions from the devices' slices: operator f of sequence=True.

    The rows of an example are consecutive.
    """
    stream_BxLxD = rows_RxD.reshape(count, -1, rows_RxD.shape[1])
    return gather_slices(stream_BxLxD, AXIS, 1).reshape(-1, rows_RxD.shape[1])


def parted(rows_RxD: jax.Array, count: int) -> jax.Array:
    """Return this device's slice of the sum: operator g of sequence=True."""
    stream_BxLxD = rows_RxD.reshape(count, -1, rows_RxD.shape[1])
    return sum_into_slices(stream_BxLxD, AXIS, 1).reshape(-1, rows_RxD.shape[1])


def offset(cut: Partition, each: int) -> Any:
    """Return the first index of this device, if every device has `each` indices."""
    return 0 if cut.size == 1 else jax.lax.axis_index(AXIS) * each


def look_up(table_VxD: jax.Array, tokens_BxL: jax.Array, cut: Partition) -> jax.Array:
    """Return the tokens' rows of the table, summed over the devices that divide it."""
    if cut.size == 1:
        return table_VxD[tokens_BxL]
    local_BxL = tokens_BxL - offset(cut, len(table_VxD))
    rows_BxLxD = table_VxD.at[local_BxL].get(
        mode="fill", fill_value=0, wrap_negative_indices=False
    )
    rows_RxD = rows_BxLxD.reshape(-1, table_VxD.shape[1])
    return cut.leave(rows_RxD, len(tokens_BxL)).reshape(
        len(tokens_BxL), -1, table_VxD.shape[1]
    )


def local_positions(places_MxD: jax.Array, length: int, cut: Partition) -> jax.Array:
    """Return the vectors of this device's positions.

    Args:
      places_MxD: Vectors of all positions.
      length: Number of positions of this device in `sequence`.
      cut: Partition of the network.
    """
    if cut.ring == 1 and not cut.sequence:
        return places_MxD[:length]
    first = jax.lax.axis_index(RING) * length if cut.ring > 1 else 0
    if cut.sequence:
        length //= cut.size
        first += offset(cut, length)
    return jax.lax.dynamic_slice_in_dim(places_MxD, first, length)


def take_positions(
    stream_BxLxD: jax.Array, positions_BxM: jax.Array, cut: Partition
) -> jax.Array:
    """Return the stream at these positions; all devices return equal arrays."""
    if not cut.sequence:
        return jnp.take_along_axis(stream_BxLxD, positions_BxM[:, :, None], axis=1)
    each = stream_BxLxD.shape[1]
    local_BxM = positions_BxM - offset(cut, each)
    is_local_BxM = (local_BxM >= 0) & (local_BxM < each)
    at_BxMx1 = jnp.clip(local_BxM, 0, each - 1)[:, :, None]
    rows_BxMxD = jnp.take_along_axis(stream_BxLxD, at_BxMx1, axis=1)
    return sum_over_devices(jnp.where(is_local_BxM[:, :, None], rows_BxMxD, 0), AXIS)
