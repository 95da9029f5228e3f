"""Trees of arrays in flat vectors, one vector for each dtype.

    stage 0   embed ······· block_0 ······     shard_map runs one program on all stages,
    stage 1   block_1 ······ head ··· 0 0 0    so arrays have equal shapes: the vectors
              └─ a leaf, at its offset         are as long as the longest stage needs.

A Packing has the shapes and offsets of a tree's leaves. Vectors may consist of several
slots of equal length; `at` has the first index of a slot, by dtype, and None stands for
the first slot.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

Vectors = dict[str, Any]  # vectors by name of their dtype
Lengths = Mapping[str, Any]  # numbers of elements by name of a dtype


class Packing(NamedTuple):
    """Shapes and offsets of a tree's leaves in vectors of these lengths."""

    shapes: Any  # a tree of ShapeDtypeStruct
    offsets: Any  # the same tree, of integers
    lengths: Lengths

    def entry(self, key: Any) -> "Packing":
        """Return the packing of one entry of a dict or a list."""
        return Packing(self.shapes[key], self.offsets[key], self.lengths)

    def pick(self, names: Iterable[str]) -> "Packing":
        """Return the packing of some entries of a dict."""
        shapes = {name: self.shapes[name] for name in names}
        return Packing(shapes, {n: self.offsets[n] for n in shapes}, self.lengths)

    def select(self, mask: Any) -> "Packing":
        """Return the packing of the leaves where the mask is true, as a list."""
        trees = map(jax.tree.leaves, (self.shapes, self.offsets, mask))
        chosen = [leaf[:2] for leaf in zip(*trees, strict=True) if leaf[2]]
        return Packing([s for s, _ in chosen], [o for _, o in chosen], self.lengths)


def packing(tree: Any) -> Packing:
    """Return a packing of the leaves one after another, in the order of the tree."""
    lengths: dict[str, int] = {}

    def offset(leaf: Any) -> int:
        start = lengths.get(dtype_name(leaf), 0)
        lengths[dtype_name(leaf)] = start + math.prod(leaf.shape)
        return start

    offsets = jax.tree.map(offset, tree)
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)
    return Packing(shapes, offsets, lengths)


def dtype_name(leaf: Any) -> str:
    return np.dtype(leaf.dtype).name


def largest(lengths: Iterable[Lengths]) -> Lengths:
    """Return the greatest length of each dtype."""
    longest: dict[str, int] = {}
    for by_dtype in lengths:
        for dtype, length in by_dtype.items():
            longest[dtype] = max(longest.get(dtype, 0), length)
    return longest


def slot(number: Any, lengths: Lengths) -> Lengths:
    """Return the first index, by dtype, of the slot with this number."""
    return {dtype: number * length for dtype, length in lengths.items()}


def zeros(lengths: Lengths, slots: int = 1) -> Vectors:
    """Return vectors of zeros with this number of slots."""
    return {dtype: jnp.zeros(slots * n, dtype) for dtype, n in lengths.items()}


def read(vectors: Vectors, packed: Packing, at: Lengths | None = None) -> Any:
    """Return the tree in a slot."""

    def leaf(like: jax.ShapeDtypeStruct, offset: int) -> Any:
        start = offset if at is None else offset + at[dtype_name(like)]
        vector, size = vectors[dtype_name(like)], math.prod(like.shape)
        return jax.lax.dynamic_slice(vector, (start,), (size,)).reshape(like.shape)

    return jax.tree.map(leaf, packed.shapes, packed.offsets)


def write(
    vectors: Vectors, packed: Packing, tree: Any, at: Lengths | None = None
) -> Vectors:
    """Return vectors with the tree written to a slot; in loops XLA updates in place."""
    changed = dict(vectors)
    for dtype, start, values in _segments(packed, tree, at):
        changed[dtype] = jax.lax.dynamic_update_slice(changed[dtype], values, start)
    return changed


def add(
    vectors: Vectors, packed: Packing, tree: Any, at: Lengths | None = None
) -> Vectors:
    """Return vectors with the tree added to a slot."""
    changed = dict(vectors)
    for dtype, start, values in _segments(packed, tree, at):
        vector, half = changed[dtype], values.size // 2
        # order matters: XLA's CPU compiler fuses an update with a read of the same
        # region into a loop over the vector, but not with reads of halves of the region
        sums = [
            part + jax.lax.dynamic_slice(vector, (start[0] + offset,), part.shape)
            for offset, part in ((0, values[:half]), (half, values[half:]))
        ]
        changed[dtype] = jax.lax.dynamic_update_slice(
            vector, jnp.concatenate(sums), start
        )
    return changed


def put(number: Any, vectors: Vectors, slots: Vectors) -> Vectors:
    """Return `slots` with the vectors written to the slot with this number."""

    def write_slot(vector: jax.Array, into: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice(into, vector, (number * vector.size,))

    return jax.tree.map(write_slot, vectors, slots)


def sum_layers(grads: Any) -> Any:
    """Return the sum over devices of the gradients of each layer, inside shard_map.

        layer 1   kernel ─┐                       layer 2   ...
                  bias   ─┴─ vector ─ psum ─ kernel, bias

    The bits are those of a psum of each array if there are two terms, or if all devices
    belong to one process.

    Cost: an all-reduce per layer, together of all gradients, and two copies of these.

    Args:
      grads: Gradients of a device by name of params, or another tree, which is summed
        as one layer.
    """

    def summed(layer: Any) -> Any:
        vector, unravel = ravel_pytree(layer)
        return unravel(jax.lax.psum(vector, "data"))

    if not isinstance(grads, Mapping):
        return summed(grads)
    return {name: summed(layer) for name, layer in grads.items()}


def _segments(
    packed: Packing, tree: Any, at: Lengths | None
) -> list[tuple[str, tuple[Any], jax.Array]]:
    """Return (dtype, start, values) of each sequence of adjacent leaves.

    XLA compiles one kernel per segment; one per leaf would be hundreds in a network.
    """
    segments: list[tuple[str, int, list[jax.Array]]] = []
    newest: dict[
        str, tuple[int, list[jax.Array]]
    ] = {}  # by dtype: end and leaves of the last segment
    offsets, values = jax.tree.leaves(packed.offsets), jax.tree.leaves(tree)
    for offset, leaf in zip(offsets, values, strict=True):
        dtype = dtype_name(leaf)
        end, leaves = newest.get(dtype, (-1, []))
        if end != offset:
            leaves = []
            segments.append((dtype, offset, leaves))
        leaves.append(leaf.reshape(-1))
        newest[dtype] = offset + leaf.size, leaves
    return [
        (dtype, (offset + (0 if at is None else at[dtype]),), jnp.concatenate(leaves))
        for dtype, offset, leaves in segments
    ]
