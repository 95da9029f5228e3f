"""GRADIENT: how a transformer lies over the devices of an axis (Megatron).

    kernels    qkv, up: by columns ║ heads, hidden units      enter: f    leave: g
               out, down: by rows  ═ the same ones
    tables     tokens, bias: by words                         the rest is whole

What it means to enter and to leave a part that is cut comes out. One device has all: to
enter and to leave is nothing then, and the network the dense one.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dml.types import BadInput
from dml.wire.mesh.conjugate import gathered, scattered, shared, summed

AXIS = "tensor"
Rows = Callable[[jax.Array, int], jax.Array]  # rows_RxD of so many examples -> the same


def same(rows_RxD: jax.Array, count: int) -> jax.Array:
    return rows_RxD


class Cut(NamedTuple):
    """What devices do that have a part of a layer each; by default there is but one."""

    size: int = 1
    sequence: bool = False  # the stream between layers lies in slices of its places
    enter: Rows = same
    leave: Rows = same


WHOLE = Cut()


def over(size: int, sequence: bool = False) -> Cut:
    """Return the cut over size devices of the axis `tensor`."""
    if size == 1:
        return WHOLE
    operators = (joined, parted) if sequence else (copied, added)
    return Cut(size, sequence, *operators)


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


def own(places_LxD: jax.Array, cut: Cut) -> jax.Array:
    """Return the rows of those places at which this device has the stream."""
    if not cut.sequence:
        return places_LxD
    each = len(places_LxD) // cut.size
    return jax.lax.dynamic_slice_in_dim(places_LxD, offset(cut, each), each)


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
