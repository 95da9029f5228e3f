"""Trees of arrays in flat vectors, one vector for each dtype.

    stage 0   embed ······· block_0 ······     shard_map runs one program on all stages,
    stage 1   block_1 ······ head ··· 0 0 0    so arrays have equal shapes: the vectors
              └─ a leaf, at its offset         are as long as the longest stage needs.

A Packing holds the shapes and offsets of a tree's leaves. A vector may have several
slots of equal length; `at` is the first index of a slot, by dtype.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Vectors = dict[str, Any]  # by the name of a dtype


class Packing(NamedTuple):
    """Shapes and offsets of a tree's leaves in vectors of these lengths."""

    shapes: Any  # a tree of ShapeDtypeStruct
    offsets: Any  # the same tree, of integers
    lengths: dict[str, int]

    def pick(self, names: Sequence[str]) -> "Packing":
        """Return the packing of some entries of a dict, at the same offsets."""
        shapes = {name: self.shapes[name] for name in names}
        return self._replace(
            shapes=shapes, offsets={name: self.offsets[name] for name in names}
        )

    def select(self, mask: Any) -> "Packing":
        """Return the packing of the leaves where the mask is true, as lists."""
        leaves = zip(
            *map(jax.tree.leaves, (self.shapes, self.offsets, mask)), strict=True
        )
        chosen = [(like, offset) for like, offset, wanted in leaves if wanted]
        shapes = [like for like, _ in chosen]
        return self._replace(shapes=shapes, offsets=[offset for _, offset in chosen])


def packing(tree: Any) -> Packing:
    """Return a packing of the leaves one after another, in the order of the tree."""
    lengths: dict[str, int] = {}

    def offset(leaf: Any) -> int:
        dtype = dtype_name(leaf)
        start = lengths.get(dtype, 0)
        lengths[dtype] = start + math.prod(leaf.shape)
        return start

    offsets = jax.tree.map(offset, tree)
    shapes = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree
    )
    return Packing(shapes, offsets, lengths)


def dtype_name(leaf: Any) -> str:
    return np.dtype(leaf.dtype).name


def largest(lengths: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the greatest length of each dtype."""
    found: dict[str, int] = {}
    for one in lengths:
        for dtype, length in one.items():
            found[dtype] = max(found.get(dtype, 0), length)
    return found


def total(lengths: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sum of lengths or indices of each dtype."""
    found: dict[str, Any] = {}
    for one in lengths:
        for dtype, length in one.items():
            found[dtype] = found.get(dtype, 0) + length
    return found


def slot(number: Any, lengths: Mapping[str, int]) -> dict[str, Any]:
    """Return the first index of a slot, where slots have these lengths."""
    return {dtype: number * length for dtype, length in lengths.items()}


def zeros(lengths: Mapping[str, int], slots: int = 1) -> Vectors:
    """Return vectors of zeros with so many slots."""
    return {dtype: jnp.zeros(slots * n, dtype) for dtype, n in lengths.items()}


def read(vectors: Vectors, packed: Packing, at: Mapping[str, Any] | None = None) -> Any:
    """Return the tree at its offsets in a slot."""

    def leaf(like: jax.ShapeDtypeStruct, offset: int) -> Any:
        dtype, size = dtype_name(like), math.prod(like.shape)
        if at is None:
            flat = vectors[dtype][offset : offset + size]
        else:
            start = (at[dtype] + offset,)
            flat = jax.lax.dynamic_slice(vectors[dtype], start, (size,))
        return flat.reshape(like.shape)

    return jax.tree.map(leaf, packed.shapes, packed.offsets)


def write(
    vectors: Vectors, packed: Packing, tree: Any, at: Mapping[str, Any] | None = None
) -> Vectors:
    """Return vectors with the tree written to a slot; XLA copies nothing in a loop."""
    found = dict(vectors)
    for dtype, start, values in _segments(packed, tree, at):
        found[dtype] = jax.lax.dynamic_update_slice(found[dtype], values, start)
    return found


def add(
    vectors: Vectors, packed: Packing, tree: Any, at: Mapping[str, Any] | None = None
) -> Vectors:
    """Return vectors with the tree added to a slot."""
    found = dict(vectors)
    for dtype, start, values in _segments(packed, tree, at):
        before = jax.lax.dynamic_slice(found[dtype], start, values.shape)
        found[dtype] = jax.lax.dynamic_update_slice(
            found[dtype], before + values, start
        )
    return found


def _segments(
    packed: Packing, tree: Any, at: Mapping[str, Any] | None
) -> list[tuple[str, tuple[Any], jax.Array]]:
    """Return dtype, start and values of each run of adjacent leaves.

    XLA compiles one kernel a segment; of a network's leaves it would compile hundreds.
    """
    joined: list[tuple[str, int, list[jax.Array]]] = []
    newest: dict[str, tuple[int, list[jax.Array]]] = {}  # end and leaves of a segment
    for offset, leaf in zip(
        jax.tree.leaves(packed.offsets), jax.tree.leaves(tree), strict=True
    ):
        dtype = dtype_name(leaf)
        end, leaves = newest.get(dtype, (-1, []))
        if end != offset:
            leaves = []
            joined.append((dtype, offset, leaves))
        leaves.append(leaf.reshape(-1))
        newest[dtype] = offset + leaf.size, leaves
    return [
        (dtype, (offset + (0 if at is None else at[dtype]),), jnp.concatenate(leaves))
        for dtype, offset, leaves in joined
    ]
