"""What a device holds as vectors, one of each dtype: alike on all, whatever it means.

    stage 0   embed ······· block_0 ······     One program runs on all devices, so what
    stage 1   block_1 ······ head ··· 0 0 0    each holds must look alike: vectors of
              └─ a leaf, at its offset         equal lengths, read at offsets.

A tree of shapes in, its Packing out; with it trees are read from vectors and written.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Vectors = dict[str, Any]  # by the name of a dtype


class Packing(NamedTuple):
    """Where the leaves of a tree lie in vectors."""

    tree: Any
    like: tuple[jax.ShapeDtypeStruct, ...]
    offsets: tuple[int, ...]
    lengths: dict[str, int]


def packing(like: Any) -> Packing:
    """Lay leaves, or their shapes, one after another, in the order of the tree."""
    leaves, tree = jax.tree.flatten(like)
    lengths: dict[str, int] = {}
    offsets = []
    for leaf in leaves:
        kind = np.dtype(leaf.dtype).name
        offsets.append(lengths.get(kind, 0))
        lengths[kind] = offsets[-1] + math.prod(leaf.shape)
    shapes = tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves)
    return Packing(tree, shapes, tuple(offsets), lengths)


def named(packed: Packing, names: Sequence[str]) -> Packing:
    """Return where the leaves of some names lie."""
    offsets = iter(packed.offsets)
    shapes = packed.tree.unflatten(packed.like)
    places = jax.tree.map(lambda _: next(offsets), shapes)
    some = packing({name: shapes[name] for name in names})
    leaves = jax.tree.leaves({name: places[name] for name in names})
    return some._replace(offsets=tuple(leaves))


def room(lengths: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the lengths in which each of these has room."""
    found: dict[str, int] = {}
    for one in lengths:
        for kind, length in one.items():
            found[kind] = max(found.get(kind, 0), length)
    return found


def sums(lengths: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the lengths, or offsets, of these one after another."""
    found: dict[str, Any] = {}
    for one in lengths:
        for kind, length in one.items():
            found[kind] = found.get(kind, 0) + length
    return found


def empty(lengths: Mapping[str, int]) -> dict[str, jax.Array]:
    """Return vectors of zeros."""
    return {kind: jnp.zeros(length, kind) for kind, length in lengths.items()}


def base(slot: Any, lengths: Mapping[str, int]) -> dict[str, Any]:
    """Return where a slot begins, of vectors that hold many such lengths."""
    return {kind: slot * length for kind, length in lengths.items()}


def read(vectors: Vectors, packed: Packing, at: Mapping[str, Any] | None = None) -> Any:
    """Return the tree that lies in vectors, after that base."""

    def leaf(like: jax.ShapeDtypeStruct, offset: int) -> Any:
        kind, size = np.dtype(like.dtype).name, math.prod(like.shape)
        if at is None:
            flat = vectors[kind][offset : offset + size]
        else:
            start = (at[kind] + offset,)
            flat = jax.lax.dynamic_slice(vectors[kind], start, (size,))
        return flat.reshape(like.shape)

    return packed.tree.unflatten(map(leaf, packed.like, packed.offsets))


def write(
    vectors: Vectors, packed: Packing, tree: Any, at: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return vectors with the tree in its place; inside a loop XLA copies nothing."""
    found = dict(vectors)
    for kind, start, flat in flattened(packed, tree, at):
        found[kind] = jax.lax.dynamic_update_slice(found[kind], flat, start)
    return found


def runs(packed: Packing) -> list[tuple[str, int, list[int]]]:
    """Return dtype, offset and numbers of leaves that lie one behind another.

    One write of all is one kernel for XLA to compile; of a network's leaves, hundreds.
    """
    found: list[tuple[str, int, list[int]]] = []
    ends: dict[str, int] = {}
    last: dict[str, list[int]] = {}
    for number, (like, offset) in enumerate(
        zip(packed.like, packed.offsets, strict=True)
    ):
        kind = np.dtype(like.dtype).name
        if ends.get(kind) != offset:
            last[kind] = []
            found.append((kind, offset, last[kind]))
        last[kind].append(number)
        ends[kind] = offset + math.prod(like.shape)
    return found


def add(
    vectors: Vectors, packed: Packing, tree: Any, at: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return vectors with the tree added in its place."""
    found = dict(vectors)
    for kind, start, flat in flattened(packed, tree, at):
        before = jax.lax.dynamic_slice(found[kind], start, flat.shape)
        found[kind] = jax.lax.dynamic_update_slice(found[kind], before + flat, start)
    return found


def flattened(
    packed: Packing, tree: Any, at: Mapping[str, Any] | None
) -> Iterator[tuple[str, tuple[Any], jax.Array]]:
    """Yield dtype, start and numbers of the tree's runs."""
    leaves = packed.tree.flatten_up_to(tree)
    for kind, offset, run in runs(packed):
        start = offset + (0 if at is None else at[kind])
        yield kind, (start,), jnp.concatenate([leaves[n].reshape(-1) for n in run])
