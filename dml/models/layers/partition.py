"""The division of a transformer over devices (Megatron), and of its positions.

    kernels    qkv, up: by columns ║ heads, hidden units      enter: f    leave: g
               out, down: by rows  ═ the same ones
    tables     tokens, bias: by words                         the rest is replicated
    positions  over the axis `sequence`: attention is a ring, see ring_attention.py

With one device `enter` and `leave` return their argument: the network is dense.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dml.types import BadInput
from dml.wire.mesh.conjugate import gathered, scattered, shared, summed

AXIS = "tensor"
RING = "sequence"
Rows = Callable[[jax.Array, int], jax.Array]  # rows_RxD of so many examples -> the same


def same(rows_RxD: jax.Array, count: int) -> jax.Array:
    return rows_RxD


class Cut(NamedTuple):
    """The operators of a device that has a part of each layer; by default all of it."""

    size: int = 1
    sequence: bool = False  # `tensor` slices activations between layers by positions
    enter: Rows = same
    leave: Rows = same
    ring: int = 1  # devices of `sequence`, each with consecutive positions


WHOLE = Cut()


def over(size: int, sequence: bool = False, ring: int = 1) -> Cut:
    """Return the cut over `size` devices of `tensor` and `ring` of `sequence`."""
    if size == 1:
        return Cut(ring=ring)
    operators = (joined, parted) if sequence else (copied, added)
    return Cut(size, sequence, *operators, ring)


def divisible(what: str, count: int, size: int) -> None:
    """Raise where devices cannot have as many of them each."""
    if count % size:
        more = count + -count % size
        raise BadInput(
            f"expected {what} to be divisible by tensor={size}, got {count}; pass "
            f"{more}, or a size of tensor that divides {count}"
        )


def copied(rows_RxD: jax.Array, count: int) -> jax.Array:
    return shared(rows_RxD, AXIS)


def added(rows_RxD: jax.Array, count: int) -> jax.Array:
    return summed(rows_RxD, AXIS)


def joined(rows_RxD: jax.Array, count: int) -> jax.Array:
    """Join slices of the places: an example's rows are next to each other."""
    stream_BxLxD = rows_RxD.reshape(count, -1, rows_RxD.shape[1])
    return gathered(stream_BxLxD, AXIS, 1).reshape(-1, rows_RxD.shape[1])


def parted(rows_RxD: jax.Array, count: int) -> jax.Array:
    stream_BxLxD = rows_RxD.reshape(count, -1, rows_RxD.shape[1])
    return scattered(stream_BxLxD, AXIS, 1).reshape(-1, rows_RxD.shape[1])


def offset(cut: Cut, each: int) -> Any:
    """Return the first of what this device has, where each has so many."""
    return 0 if cut.size == 1 else jax.lax.axis_index(AXIS) * each


def found(table_VxD: jax.Array, tokens_BxL: jax.Array, cut: Cut) -> jax.Array:
    """Return the tokens' rows of the table, summed over the devices with its parts."""
    if cut.size == 1:
        return table_VxD[tokens_BxL]
    mine_BxL = tokens_BxL - offset(cut, len(table_VxD))
    rows_BxLxD = table_VxD.at[mine_BxL].get(
        mode="fill", fill_value=0, wrap_negative_indices=False
    )
    rows_RxD = rows_BxLxD.reshape(-1, table_VxD.shape[1])
    return cut.leave(rows_RxD, len(tokens_BxL)).reshape(
        len(tokens_BxL), -1, table_VxD.shape[1]
    )


def own(places_MxD: jax.Array, length: int, cut: Cut) -> jax.Array:
    """Return the rows of this device's positions; `length` tokens are its examples'."""
    if cut.ring == 1 and not cut.sequence:
        return places_MxD[:length]
    first = jax.lax.axis_index(RING) * length if cut.ring > 1 else 0
    if cut.sequence:
        length //= cut.size
        first += offset(cut, length)
    return jax.lax.dynamic_slice_in_dim(places_MxD, first, length)


def picked(stream_BxLxD: jax.Array, positions_BxM: jax.Array, cut: Cut) -> jax.Array:
    """Return the stream at these positions, on all devices, whoever has them."""
    if not cut.sequence:
        return jnp.take_along_axis(stream_BxLxD, positions_BxM[:, :, None], axis=1)
    each = stream_BxLxD.shape[1]
    mine_BxM = positions_BxM - offset(cut, each)
    here_BxM = (mine_BxM >= 0) & (mine_BxM < each)
    at_BxMx1 = jnp.clip(mine_BxM, 0, each - 1)[:, :, None]
    some_BxMxD = jnp.take_along_axis(stream_BxLxD, at_BxMx1, axis=1)
    return summed(jnp.where(here_BxM[:, :, None], some_BxMxD, 0), AXIS)
