"""A model in parts: which layers each stage computes, and what its devices hold.

    layers   embed  block_0 | block_1  block_2 | block_3  head
    part           0                1                  2       of a stage each, or more
    pieces   embed, block_0 | block_1, block_2 | block_3, head   a backward's ticks

A model cut over `tensor`, ranges of layers and trees of whole arrays in; vectors on the
devices of a mesh out (wire/mesh/packed.py), and back.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from dml.types import Layer, Params, Tensor
from dml.wire.mesh.axes import HELD, WHOLE, local
from dml.wire.mesh.packed import Packing, Vectors, base, packing, room
from dml.wire.stages import stages as balanced


class Part(NamedTuple):
    """Some layers in a row, of one stage."""

    stage: int
    round: int  # which of the stage's parts
    pieces: tuple[tuple[Layer, ...], ...]  # in the order of the forward; some empty
    params: Packing  # by name: a device's slices of what the layers read

    @property
    def names(self) -> list[str]:
        return list(names([layer for piece in self.pieces for layer in piece]))


def names(layers: Sequence[Layer]) -> dict[str, None]:
    """Return what layers read, each name once."""
    return dict.fromkeys(name for layer in layers for name in layer.names)


def parts(
    model: Tensor,
    params: Params,
    axes: Mesh,
    ranges: Sequence[range],
    seconds: Sequence[float],
    pieces: int,
) -> list[Part]:
    """Return the parts of these ranges of layers; params may be only shapes.

    A part's layers are cut into so many pieces of alike seconds, as far as it has them.
    """
    stages, size = axes.shape["stage"], axes.shape["tensor"]

    def slices(name: str) -> Any:
        def one(leaf: Any, spec: Any) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(local(leaf.shape, spec, size), leaf.dtype)

        return jax.tree.map(one, params[name], model.specs[name])

    def part(number: int, span: range) -> Part:
        some = min(pieces, len(span))
        cuts = balanced([seconds[n] for n in span], some)
        groups = [tuple(model.layers[span[n]] for n in cut) for cut in cuts]
        empty: list[tuple[Layer, ...]] = [()] * (pieces - some)
        read = names([layer for group in groups for layer in group])
        packed = packing({name: slices(name) for name in read})
        return Part(
            number % stages, number // stages, (*empty, *map(tuple, groups)), packed
        )

    return [part(number, span) for number, span in enumerate(ranges)]


class Held(NamedTuple):
    """How a tree of whole arrays lies on the devices: in vectors, part by part."""

    like: Any  # of the whole tree
    packed: tuple[Packing, ...]  # of each part's leaves on one device
    lengths: dict[str, int]  # of a part; a device has one after another
    parts: tuple[Part, ...]
    axes: Mesh

    def base(self, part: Part) -> dict[str, int]:
        return base(part.round, self.lengths)

    def hold(self, tree: Any) -> Vectors:
        """Give every device what is its own of a tree of whole arrays."""
        whole = paths(jax.device_get(tree))
        stages, size = self.axes.shape["stage"], self.axes.shape["tensor"]
        rounds = len(self.parts) // stages

        def block(kind: str, stage: int, tensor: int) -> np.ndarray:
            vector = np.zeros((1, 1, rounds * self.lengths[kind]), kind)
            for part, packed in zip(self.parts, self.packed, strict=True):
                if part.stage != stage:
                    continue
                for path, like, at in entries(packed):
                    if np.dtype(like.dtype).name == kind:
                        at += self.base(part)[kind]
                        flat = sliced(whole[path], like.shape, tensor).reshape(-1)
                        vector[0, 0, at : at + flat.size] = flat
            return vector

        def laid(kind: str) -> jax.Array:
            def mine(at: Any) -> np.ndarray:
                return block(kind, at[0].start or 0, at[1].start or 0)

            shape = (stages, size, rounds * self.lengths[kind])
            lies = NamedSharding(self.axes, HELD)
            return jax.make_array_from_callback(shape, lies, mine)

        return {kind: laid(kind) for kind in self.lengths}

    def collect(self, vectors: Vectors) -> Any:
        """Return the tree of whole arrays, on the host; collective."""
        wide = NamedSharding(self.axes, WHOLE)
        found = everywhere(vectors, wide)
        arrays = {k: np.asarray(one.addressable_data(0)) for k, one in found.items()}
        size, whole = self.axes.shape["tensor"], dict[str, np.ndarray]()
        shapes = paths(self.like)
        for part, packed in zip(self.parts, self.packed, strict=True):
            for path, like, at in entries(packed):
                if path in whole:
                    continue
                kind = np.dtype(like.dtype).name
                at += self.base(part)[kind]
                rows = arrays[kind][part.stage, :, at : at + like.size]
                some = [rows[n].reshape(like.shape) for n in range(size)]
                axis = cut(shapes[path].shape, like.shape)
                whole[path] = (
                    some[0].copy() if axis is None else np.concatenate(some, axis)
                )
        return jax.tree.unflatten(
            jax.tree.structure(self.like), [whole[path] for path in shapes]
        )


def holding(
    parts: Sequence[Part], like: Params, axes: Mesh, make: Callable[[Any], Any]
) -> Held:
    """Return how make(params) lies on the devices: params themselves, or a state."""
    trees = [
        jax.eval_shape(make, part.params.tree.unflatten(part.params.like))
        for part in parts
    ]
    packed = tuple(map(packing, trees))
    lengths = room([one.lengths for one in packed])
    return Held(jax.eval_shape(make, like), packed, lengths, tuple(parts), axes)


def paths(tree: Any) -> dict[str, Any]:
    """Return the leaves of a tree by where they are in it."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def entries(packed: Packing) -> list[tuple[str, jax.ShapeDtypeStruct, int]]:
    """Return path, shape and offset of every leaf."""
    found = paths(packed.tree.unflatten(packed.like))
    return list(zip(found, packed.like, packed.offsets, strict=True))


def cut(whole: tuple[int, ...], part: tuple[int, ...]) -> int | None:
    """Return the axis along which the part is cut; None where it is the whole."""
    pairs = enumerate(zip(whole, part, strict=True))
    return next((axis for axis, (all_of, some) in pairs if all_of != some), None)


def sliced(whole: np.ndarray, shape: tuple[int, ...], number: int) -> np.ndarray:
    """Return a device's slice, of that shape, of a whole leaf."""
    axis = cut(np.shape(whole), shape)
    if axis is None:
        return np.asarray(whole)
    start = number * shape[axis]
    return np.take(whole, range(start, start + shape[axis]), axis)


@partial(jax.jit, static_argnums=1)
def everywhere(vectors: Vectors, wide: NamedSharding) -> Vectors:
    """Give every device the whole of vectors."""
    return jax.lax.with_sharding_constraint(vectors, wide)
