"""Sums over JAX devices with equal bits on any number of them, in any order.

    x of each device      0.31  -2e-3  …       any pytree of floating-point arrays
    exponents             pmax, one for 512 elements
    integers              round(x · 2^s): psum of integers is associative
    result                sum / 2^s, equal on all devices

The arithmetic is that of `dml.exact_sum` on ranks (`wire/reducers/fixed_point.py`):
float32 sums of devices and of ranks have equal bits. bfloat16 and float16 are summed as
float32 and rounded once; integers are summed by psum itself.

Rounding error of a term, with `terms` = 64: 2^-25 of the largest absolute value of its
block for float32, 2^-57 for float64. A block with a NaN or an infinity becomes NaN.
Integers sent: those of psum, and one for a block of 512 elements.

Only the bits of the sum over devices do not depend on their number. Matrix products and
fusions inside of a device may round otherwise when their shapes change: `exact_mean`
computes shards whose shapes do not depend on the number of devices.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dml.types import BadInput
from dml.wire.plans.fixed_point import BLOCK, LOWEST, MOST, check_most, integer_shift

Axis = str | tuple[str, ...] | None


class Format(NamedTuple):
    """A floating-point type, and the integers of its size.

    Attributes:
      integer: Type of the integers.
      bits: Size of both.
      mantissa: Number of stored bits of the significand.
      bias: Stored exponent of 1.
      lowest: Stored exponents below it count as it, so that scales are finite.
    """

    integer: Any
    bits: int
    mantissa: int
    bias: int
    lowest: int


FORMATS = {
    jnp.dtype("float32"): Format(jnp.int32, 32, 23, 127, LOWEST),
    jnp.dtype("float64"): Format(jnp.int64, 64, 52, 1023, 64),
}


def exact_psum(tree: Any, axis_name: Axis, *, terms: int = MOST[32]) -> Any:
    """Return the sum of a pytree over the devices of an axis, as `jax.lax.psum` does.

    A term is what one device passes. The sum of these terms has the same bits on any
    network, in any order, and with further devices that pass zeros.

    Args:
      tree: Arrays of a device, inside of `jax.shard_map` or `jax.pmap`.
      axis_name: Axis of the mesh, or several.
      terms: Largest number of terms, a power of two up to 65,536; bits depend on it.
    """
    return _sum(
        jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], tree), axis_name, terms
    )


def exact_mean(
    function: Callable[..., Any], shards: int, axis_name: Axis = None
) -> Callable[..., Any]:
    """Return a function whose result is the mean over the shards of a minibatch.

        gradient = exact_mean(jax.value_and_grad(loss), 16, "data")

    The rows of a minibatch are divided into `shards` equal shards, in their order, and
    the function is called for one shard after another: on 1, 2, 4 or 8 devices, the 16
    shards have equal shapes, and their mean has equal bits as far as XLA compiles the
    function alike. A device stores the results of all of its shards.

    Args:
      function: A function of params and a minibatch, such as a gradient.
      shards: Number of shards, a multiple of the number of devices.
      axis_name: Axis over which the minibatch is divided; none: one device has it.
    """

    def mean(params: Any, batch: Any) -> Any:
        devices = _size(axis_name)
        shapes = [leaf.shape for leaf in jax.tree.leaves(batch)]
        own, rows = shards // devices, {shape[0] for shape in shapes}
        if own < 1 or shards % devices or len(rows) != 1 or rows.pop() % own:
            raise BadInput(
                f"expected shards in equal numbers on {devices} devices, of equally "
                f"many rows, got {shards} shards and arrays of a device with shapes "
                f"{shapes}; pass other shards or another minibatch"
            )
        parts = jax.tree.map(
            lambda leaf: leaf.reshape(own, len(leaf) // own, *leaf.shape[1:]), batch
        )
        if axis_name is not None:  # else JAX sums gradients of equal params by itself
            params = jax.lax.pcast(params, axis_name, to="varying")
        each = jax.lax.map(partial(function, params), parts)
        total = _sum(each, axis_name, 1 << (shards - 1).bit_length())
        return jax.tree.map(lambda leaf: leaf / shards, total)

    return mean


@partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def _sum(tree: Any, axis: Axis, most: int) -> Any:
    """Return the sum over the first axis of arrays and over devices."""
    check_most(most)
    leaves, structure = jax.tree.flatten(tree)
    for leaf in leaves[:1]:
        if len(leaf) * _size(axis) >= 2 * most:
            raise BadInput(
                f"expected at most {most} terms, got {len(leaf)} on each of "
                f"{_size(axis)} devices; pass a larger power of two as terms"
            )
    blocks = {i: _blocks(leaf) for i, leaf in enumerate(leaves) if _is_float(leaf)}
    own = {i: _exponents(each) for i, each in blocks.items()}
    exponents = own if axis is None else jax.lax.pmax(own, axis)
    integers = [
        _to_integers(blocks[i], exponents[i], most)
        if i in blocks
        else leaf.sum(axis=0, dtype=leaf.dtype)
        for i, leaf in enumerate(leaves)
    ]
    sums = integers if axis is None else jax.lax.psum(integers, axis)
    for i in blocks:
        sums[i] = _to_floats(sums[i], leaves[i], exponents[i], most)
    return jax.tree.unflatten(structure, sums)


@_sum.defjvp
def _sum_jvp(axis: Axis, most: int, primals: Any, tangents: Any) -> Any:
    raise BadInput(
        "expected exact_psum outside of a function that is differentiated, got it "
        "inside; sum gradients by it, and use jax.lax.psum in a loss"
    )


def _size(axis: Axis) -> int:
    return 1 if axis is None else jax.lax.psum(1, axis)


def _is_float(leaf: jax.Array) -> bool:
    if leaf.dtype in FORMATS or leaf.dtype in (jnp.bfloat16, jnp.float16):
        return True
    if jnp.issubdtype(leaf.dtype, jnp.integer):
        return False
    raise BadInput(
        "expected float16, bfloat16, float32, float64 or integers, got "
        f"{leaf.dtype}; convert it"
    )


def _blocks(terms: jax.Array) -> jax.Array:
    """Return the terms as blocks: terms x blocks x 512."""
    flat = terms.reshape(len(terms), -1)
    flat = flat if terms.dtype in FORMATS else flat.astype(jnp.float32)
    padded = jnp.pad(flat, ((0, 0), (0, -flat.shape[1] % BLOCK)))
    return padded.reshape(len(terms), -1, BLOCK)


def _exponents(blocks: jax.Array) -> jax.Array:
    """Return the stored exponent of the largest absolute value of each block."""
    form = FORMATS[blocks.dtype]
    bits = jax.lax.bitcast_convert_type(jnp.abs(blocks), form.integer)
    return (bits.max(axis=(0, 2)) >> form.mantissa).astype(jnp.int32)


def _power(form: Format, exponents: jax.Array, most: int) -> jax.Array:
    shift = integer_shift(form.bits, most)
    return shift + form.bias - 1 - jnp.maximum(exponents, form.lowest)


def _two_to(power: jax.Array, form: Format, dtype: Any) -> jax.Array:
    stored = (power + form.bias).astype(form.integer) << form.mantissa
    return jax.lax.bitcast_convert_type(stored, dtype)


def _to_integers(blocks: jax.Array, exponents: jax.Array, most: int) -> jax.Array:
    """Return the sum of a device's terms as integers."""
    form = FORMATS[blocks.dtype]
    scale = _two_to(_power(form, exponents, most), form, blocks.dtype)
    scaled = jnp.round(blocks * scale[:, None])
    integers = jnp.where(_finite(exponents, form)[:, None], scaled, 0)
    return integers.astype(form.integer).sum(axis=0, dtype=form.integer)


def _to_floats(
    total: jax.Array, terms: jax.Array, exponents: jax.Array, most: int
) -> jax.Array:
    """Return a sum of integers as an array of the shape and type of a term."""
    dtype = terms.dtype if terms.dtype in FORMATS else jnp.dtype("float32")
    form = FORMATS[dtype]
    inverse = _two_to(-_power(form, exponents, most), form, dtype)
    inverse = jnp.where(_finite(exponents, form), inverse, jnp.nan)
    values = (total.astype(dtype) * inverse[:, None]).reshape(-1)
    return values[: terms[0].size].reshape(terms.shape[1:]).astype(terms.dtype)


def _finite(exponents: jax.Array, form: Format) -> jax.Array:
    return exponents < 2 * form.bias + 1
