"""Layouts of params and optimizer states on a mesh: packed vectors, part by part.

              tensor 0          tensor 1
    stage 0   part 0, part 2    part 0, part 2    A device has its slices of the leaves
    stage 1   part 1, part 3    part 1, part 3    of its parts, in a vector per dtype.

Replicas on the axis data have equal vectors, or, with ZeRO, slices of the leaves.
Checkpoints contain full arrays, so that a run can continue on another mesh.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dml.strategies.hybrid.parts import StagePart
from dml.types import Params
from dml.update.paths import leaves_by_path
from dml.wire.mesh.axes import REPLICATED, SHARDED, SLICED
from dml.wire.mesh.packed import (
    Lengths,
    Packing,
    Vectors,
    dtype_name,
    largest,
    packing,
    slot,
)
from dml.wire.mesh.slices import slice_shapes
from dml.wire.mesh.when import State, when


class StageLayout(NamedTuple):
    """The positions of a tree's leaves in vectors, part by part.

    The vectors have the shape stages x tensor x replicas x length, where `replicas` is
    1 if replicas on the axis data have equal vectors.
    """

    shapes: Any  # shapes of the full arrays
    packings: tuple[Packing, ...]  # by part: its slices on one device
    lengths: Lengths  # lengths of one part; the parts of a stage are consecutive
    parts: tuple[StagePart, ...]
    axes: Mesh
    local: tuple[Any, ...]  # by part: shapes on a device before slices over data
    replicas: int = 1  # number of slices of a leaf over the axis data

    @property
    def spec(self) -> PartitionSpec:
        """The sharding of the vectors."""
        return SHARDED if self.replicas == 1 else SLICED

    def start(self, part: StagePart) -> Lengths:
        """Return the first index of a part in the vectors of its stage."""
        return slot(part.round, self.lengths)

    def scatter(self, tree: Any) -> Vectors:
        """Return the vectors of a tree of full arrays."""
        leaves = leaves_by_path(jax.device_get(tree))
        sizes = self.axes.shape["stage"], self.axes.shape["tensor"], self.replicas
        rounds = len(self.parts) // sizes[0]
        vectors = {
            dtype: np.zeros((*sizes, rounds * length), dtype)
            for dtype, length in self.lengths.items()
        }
        for path, stage, dtype, indices, local in self._entries():
            leaf = np.asarray(leaves[path])
            axis = sliced_axis(leaf.shape, local)
            if axis is None:
                slices = [leaf] * sizes[1]
            else:
                slices = np.split(leaf, sizes[1], axis)
            length = indices.stop - indices.start
            for tensor, leaf_slice in enumerate(slices):
                values = leaf_slice.reshape(-1)
                if len(values) == length:  # equal on all replicas
                    vectors[dtype][stage, tensor, :, indices] = values
                else:
                    padding = length * sizes[2] - len(values)
                    rows = np.pad(values, (0, padding)).reshape(sizes[2], length)
                    vectors[dtype][stage, tensor, :, indices] = rows
        return {
            dtype: place(vector.reshape(-1), self.axes, self.spec)
            for dtype, vector in vectors.items()
        }

    def collect(self, vectors: Vectors) -> Any:
        """Return the tree of full arrays on the host; collective."""
        replicated = _replicated(vectors, NamedSharding(self.axes, REPLICATED))
        sizes = self.axes.shape["stage"], self.axes.shape["tensor"], self.replicas
        arrays = {
            dtype: np.asarray(vector.addressable_data(0)).reshape(*sizes, -1)
            for dtype, vector in replicated.items()
        }
        shapes = leaves_by_path(self.shapes)
        leaves: dict[str, np.ndarray] = {}
        for path, stage, dtype, indices, local in self._entries():
            if path not in leaves:
                # of leaves that are not sliced over data, each replica has all values
                rows = arrays[dtype][stage, :, :, indices].reshape(sizes[1], -1)
                slices = [row[: math.prod(local)].reshape(local) for row in rows]
                axis = sliced_axis(shapes[path].shape, local)
                if axis is None:
                    leaves[path] = slices[0].copy()
                else:
                    leaves[path] = np.concatenate(slices, axis)
        return jax.tree.unflatten(
            jax.tree.structure(self.shapes), [leaves[path] for path in shapes]
        )

    def _entries(self) -> Iterator[tuple[str, int, str, slice, tuple[int, ...]]]:
        """Yield path, stage, dtype, indices and local shape of each leaf of each part.

        The local shape is that of a device's slice over tensor; the indices may be
        those of a slice of it over data.
        """
        for part, packed in zip(self.parts, self.packings, strict=True):
            offsets, start = leaves_by_path(packed.offsets), self.start(part)
            local = leaves_by_path(self.local[part.number])
            for path, leaf in leaves_by_path(packed.shapes).items():
                dtype = dtype_name(leaf)
                first = start[dtype] + offsets[path]
                indices = slice(first, first + leaf.size)
                yield path, part.stage, dtype, indices, local[path].shape


def layout_of(
    parts: Sequence[StagePart],
    params: Params,
    axes: Mesh,
    transform: Callable[[Any], Any],
    replicas: int = 1,
) -> StageLayout:
    """Return the layout of transform(params).

    Args:
      parts: Parts of the model.
      params: Params of the model, or their shapes.
      axes: The mesh.
      transform: The identity for a layout of params; optimizer.init for a layout of the
        optimizer's state.
      replicas: Number of devices of the axis data among which leaves are sliced.
    """

    def shapes_of(params: Params) -> Any:
        return jax.eval_shape(transform, params)

    local = tuple(shapes_of(part.params.shapes) for part in parts)
    packings = tuple(map(packing, local))
    if replicas > 1:
        packings = tuple(
            packing(shapes_of(slice_shapes(part.params.shapes, replicas)))
            for part in parts
        )
    lengths = largest(packed.lengths for packed in packings)
    return StageLayout(
        shapes_of(params), packings, lengths, tuple(parts), axes, local, replicas
    )


def apply_to_parts(
    parts: Sequence[StagePart],
    change: Callable[[StagePart, State], State],
    state: State,
) -> State:
    """Replace the state by change(part, state) for every part, on the part's stage."""
    stage = jax.lax.axis_index("stage")
    for part in parts:
        state = when(stage == part.stage, partial(change, part), state)
    return state


def sliced_axis(shape: tuple[int, ...], part: tuple[int, ...]) -> int | None:
    """Return the axis along which an array is sliced; None if it is replicated.

    Args:
      shape: Shape of the full array.
      part: Shape of its part on one device.
    """
    sizes = enumerate(zip(shape, part, strict=True))
    return next((axis for axis, (full, local) in sizes if full != local), None)


def place(array: np.ndarray, axes: Mesh, spec: PartitionSpec) -> jax.Array:
    """Place an array, equal in all processes, on the devices."""
    sharding = NamedSharding(axes, spec)
    indices_map = sharding.addressable_devices_indices_map(array.shape)
    # not make_array_from_callback: a transfer guard would report it
    shards = [
        jax.device_put(array[indices], device)
        for device, indices in indices_map.items()
    ]
    return jax.make_array_from_single_device_arrays(array.shape, sharding, shards)


@partial(jax.jit, static_argnums=1)
def _replicated(vectors: Vectors, sharding: NamedSharding) -> Vectors:
    return jax.lax.with_sharding_constraint(vectors, sharding)
