"""Layouts of params and optimizer states on a mesh: packed vectors, part by part.

              tensor 0          tensor 1
    stage 0   part 0, part 2    part 0, part 2    each part's slices of its leaves, in
    stage 1   part 1, part 3    part 1, part 3    one vector for each dtype

Replicas of axis data have equal vectors. Checkpoints contain full arrays, so that a
run can continue on another mesh.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dml.strategies.hybrid.parts import Part
from dml.types import Params
from dml.wire.mesh.axes import REPLICATED, SHARDED
from dml.wire.mesh.packed import (
    Lengths,
    Packing,
    Vectors,
    dtype_name,
    largest,
    packing,
    slot,
)
from dml.wire.mesh.when import State, when


class Layout(NamedTuple):
    """The positions of a tree's leaves in vectors of stages x tensor x length."""

    shapes: Any  # of the full arrays
    packings: tuple[Packing, ...]  # of each part's slices on one device
    lengths: Lengths  # of one part; the parts of a stage are consecutive
    parts: tuple[Part, ...]
    axes: Mesh

    def start(self, part: Part) -> Lengths:
        """Return the first index of a part in the vectors of its stage."""
        return slot(part.round, self.lengths)

    def scatter(self, tree: Any) -> Vectors:
        """Return the vectors of a tree of full arrays."""
        leaves = by_path(jax.device_get(tree))
        stages, size = self.axes.shape["stage"], self.axes.shape["tensor"]
        rounds = len(self.parts) // stages
        vectors = {
            dtype: np.zeros((stages, size, rounds * length), dtype)
            for dtype, length in self.lengths.items()
        }
        for path, stage, dtype, indices, shape in self._entries():
            leaf = np.asarray(leaves[path])
            axis = sliced_axis(leaf.shape, shape)
            slices = [leaf] * size if axis is None else np.split(leaf, size, axis)
            for tensor, part in enumerate(slices):
                vectors[dtype][stage, tensor, indices] = part.reshape(-1)
        return {
            dtype: place(vector.reshape(-1), self.axes, SHARDED)
            for dtype, vector in vectors.items()
        }

    def collect(self, vectors: Vectors) -> Any:
        """Return the tree of full arrays on the host; collective."""
        replicated = _replicated(vectors, NamedSharding(self.axes, REPLICATED))
        mesh = self.axes.shape["stage"], self.axes.shape["tensor"], -1
        arrays = {
            dtype: np.asarray(vector.addressable_data(0)).reshape(mesh)
            for dtype, vector in replicated.items()
        }
        shapes, leaves = by_path(self.shapes), dict[str, np.ndarray]()
        for path, stage, dtype, indices, shape in self._entries():
            if path not in leaves:
                rows = arrays[dtype][stage, :, indices]
                slices = [row.reshape(shape) for row in rows]
                axis = sliced_axis(shapes[path].shape, shape)
                leaves[path] = (
                    slices[0].copy() if axis is None else np.concatenate(slices, axis)
                )
        return jax.tree.unflatten(
            jax.tree.structure(self.shapes), [leaves[path] for path in shapes]
        )

    def _entries(self) -> Iterator[tuple[str, int, str, slice, tuple[int, ...]]]:
        """Yield path, stage, dtype, indices and shape of each leaf of each part."""
        for part, packed in zip(self.parts, self.packings, strict=True):
            offsets, start = by_path(packed.offsets), self.start(part)
            for path, like in by_path(packed.shapes).items():
                dtype = dtype_name(like)
                first = start[dtype] + offsets[path]
                yield (
                    path,
                    part.stage,
                    dtype,
                    slice(first, first + like.size),
                    like.shape,
                )


def layout_of(
    parts: Sequence[Part], params: Params, axes: Mesh, make: Callable[[Any], Any]
) -> Layout:
    """Return the layout of make(params).

    Args:
      parts: Parts of the model.
      params: Params of the model, or their shapes.
      axes: The mesh.
      make: Identity for params; optimizer.init for its state.
    """
    packings = tuple(
        packing(jax.eval_shape(make, part.params.shapes)) for part in parts
    )
    lengths = largest(packed.lengths for packed in packings)
    return Layout(jax.eval_shape(make, params), packings, lengths, tuple(parts), axes)


def each_part(
    parts: Sequence[Part], change: Callable[[Part, State], State], state: State
) -> State:
    """Apply change(part, state) of each part on its stage; return the last state."""
    stage = jax.lax.axis_index("stage")
    for part in parts:
        state = when(stage == part.stage, partial(change, part), state)
    return state


def by_path(tree: Any) -> dict[str, Any]:
    """Return the leaves of a tree by their paths."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def sliced_axis(shape: tuple[int, ...], part: tuple[int, ...]) -> int | None:
    """Return the axis along which an array is sliced; None if it is replicated."""
    sizes = enumerate(zip(shape, part, strict=True))
    return next((axis for axis, (full, slice_) in sizes if full != slice_), None)


def place(array: np.ndarray, axes: Mesh, spec: PartitionSpec) -> jax.Array:
    """Place an array, equal in all processes, on the devices."""
    sharding = NamedSharding(axes, spec)
    indices = sharding.addressable_devices_indices_map(array.shape)
    # not make_array_from_callback: a transfer guard would report it
    shards = [jax.device_put(array[at], device) for device, at in indices.items()]
    return jax.make_array_from_single_device_arrays(array.shape, sharding, shards)


@partial(jax.jit, static_argnums=1)
def _replicated(vectors: Vectors, sharding: NamedSharding) -> Vectors:
    return jax.lax.with_sharding_constraint(vectors, sharding)
