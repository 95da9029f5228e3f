"""The partition of a transformer over devices (Megatron), and of its positions.

    leaf of params          divided over the axis `tensor` by
    kernels of qkv, up      columns: each device has some heads or hidden units
    kernels of out, down    rows, for the same heads or hidden units
    token table, its bias   tokens of the vocabulary
    others                  not divided: every device has a copy

Megatron's operator f is called before kernels divided by columns, its operator g after
kernels divided by rows. The axis `sequence` divides the positions; attention is then
computed by ring_attention.py. On one device both operators return their argument.
Activations are matrices of R rows: one row of width D per position and example.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dml.types import BadInput
from dml.wire.mesh import conjugate

AXIS = "tensor"
RING = "sequence"
Rows = Callable[[jax.Array, int], jax.Array]  # an operator: rows, examples -> rows


def unchanged(rows_RxD: jax.Array, count: int) -> jax.Array:
    """Return the rows: operators f and g on one device."""
    return rows_RxD


class Partition(NamedTuple):
    """The numbers of devices that divide a network, and the operators between them.

    Attributes:
      size: Number of devices of the axis `tensor`.
      sequence: Whether `tensor` also slices activations between layers by positions.
      enter: Operator f, before kernels that are divided by columns.
      leave: Operator g, after kernels that are divided by rows.
      ring: Number of devices of the axis `sequence`, each with consecutive positions.
    """

    size: int = 1
    sequence: bool = False
    enter: Rows = unchanged
    leave: Rows = unchanged
    ring: int = 1


ONE_DEVICE = Partition()


def partition_over(size: int, sequence: bool = False, ring: int = 1) -> Partition:
    """Return the partition over `size` devices of `tensor` and `ring` of `sequence`."""
    if size == 1:
        return Partition(ring=ring)
    operators = (
        (gather_positions, sum_and_slice)
        if sequence
        else (copy_to_devices, sum_over_devices)
    )
    return Partition(size, sequence, *operators, ring)


def check_divisible(name: str, count: int, size: int) -> None:
    """Raise BadInput if `count` is not divisible by the number of devices, `size`."""
    if count % size:
        next_multiple = count + -count % size
        raise BadInput(
            f"expected {name} to be divisible by tensor={size}, got {count}; pass "
            f"{next_multiple}, or a size of tensor that divides {count}"
        )


def copy_to_devices(rows_RxD: jax.Array, count: int) -> jax.Array:
    """Operator f: return the rows; their gradients are summed over devices."""
    return conjugate.copy_to_devices(rows_RxD, AXIS)


def sum_over_devices(rows_RxD: jax.Array, count: int) -> jax.Array:
    """Operator g: return the sum over devices."""
    return conjugate.sum_over_devices(rows_RxD, AXIS)


def gather_positions(rows_RxD: jax.Array, count: int) -> jax.Array:
    """Operator f of sequence=True: gather the slices of positions of all devices.

    The rows of an example are consecutive; `count` is the number of examples.
    """
    stream_BxLxD = rows_RxD.reshape(count, -1, rows_RxD.shape[1])
    return conjugate.gather_slices(stream_BxLxD, AXIS, 1).reshape(-1, rows_RxD.shape[1])


def sum_and_slice(rows_RxD: jax.Array, count: int) -> jax.Array:
    """Operator g of sequence=True: return this device's positions of the sum."""
    stream_BxLxD = rows_RxD.reshape(count, -1, rows_RxD.shape[1])
    return conjugate.sum_into_slices(stream_BxLxD, AXIS, 1).reshape(
        -1, rows_RxD.shape[1]
    )


def offset(partition: Partition, per_device: int) -> Any:
    """Return the first of this device's `per_device` consecutive indices."""
    return 0 if partition.size == 1 else jax.lax.axis_index(AXIS) * per_device


def look_up(
    table_VxD: jax.Array, tokens_BxL: jax.Array, partition: Partition
) -> jax.Array:
    """Return the vectors of tokens from a table that is divided over devices."""
    if partition.size == 1:
        return table_VxD[tokens_BxL]
    # a device has zeros for the tokens of other devices; `leave` sums over devices
    local_BxL = tokens_BxL - offset(partition, len(table_VxD))
    rows_BxLxD = table_VxD.at[local_BxL].get(
        mode="fill", fill_value=0, wrap_negative_indices=False
    )
    rows_RxD = rows_BxLxD.reshape(-1, table_VxD.shape[1])
    return partition.leave(rows_RxD, len(tokens_BxL)).reshape(
        len(tokens_BxL), -1, table_VxD.shape[1]
    )


def local_positions(
    positions_MxD: jax.Array, length: int, partition: Partition
) -> jax.Array:
    """Return the vectors of this device's positions.

    Args:
      positions_MxD: Vectors of all positions.
      length: Number of positions of a device of the axis `sequence`.
      partition: Partition of the network.
    """
    if partition.ring == 1 and not partition.sequence:
        return positions_MxD[:length]
    first = jax.lax.axis_index(RING) * length if partition.ring > 1 else 0
    if partition.sequence:
        length //= partition.size
        first += offset(partition, length)
    return jax.lax.dynamic_slice_in_dim(positions_MxD, first, length)


def slice_positions(array_BxL: jax.Array, partition: Partition) -> jax.Array:
    """Return the positions of this device of the axis `tensor`.

    The axis `sequence` has divided the array already, by the sharding of the batch.
    """
    if not partition.sequence:
        return array_BxL
    length = array_BxL.shape[1] // partition.size
    first = offset(partition, length)
    return jax.lax.dynamic_slice_in_dim(array_BxL, first, length, axis=1)


def take_positions(
    stream_BxLxD: jax.Array, positions_BxM: jax.Array, partition: Partition
) -> jax.Array:
    """Return the residual stream at these positions, equal on all devices."""
    if not partition.sequence:
        return jnp.take_along_axis(stream_BxLxD, positions_BxM[:, :, None], axis=1)
    per_device = stream_BxLxD.shape[1]
    local_BxM = positions_BxM - offset(partition, per_device)
    is_local_BxM = (local_BxM >= 0) & (local_BxM < per_device)
    index_BxMx1 = jnp.clip(local_BxM, 0, per_device - 1)[:, :, None]
    rows_BxMxD = jnp.take_along_axis(stream_BxLxD, index_BxMx1, axis=1)
    return conjugate.sum_over_devices(
        jnp.where(is_local_BxM[:, :, None], rows_BxMxD, 0), AXIS
    )
