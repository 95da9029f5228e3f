"""Trees in equal slices over the axis `data` of a mesh (ZeRO).

    leaf  a b c d e f g      flattened, zeros at its end
          ├─────┼─────┤
       device 0   device 1   a b c d on device 0, e f g 0 on device 1

The devices together store a tree once, instead of once per device.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dml.wire.mesh.axes import DATA_SHARDED, REPLICATED


def split(tree: Any, size: int) -> Any:
    """Return every leaf as a vector, padded to a multiple of the number of devices."""

    def flat(leaf: Any) -> jax.Array:
        vector = jnp.reshape(leaf, -1)
        return jnp.pad(vector, (0, -vector.size % size))

    return jax.tree.map(flat, tree)


def join(tree: Any, like: Any) -> Any:
    """Return vectors in the shapes of the leaves of `like`, without padding."""

    def shaped(vector: Any, leaf: Any) -> Any:
        unsliced = vector.shape == leaf.shape  # scalars are not sliced
        return vector if unsliced else vector[: leaf.size].reshape(leaf.shape)

    return jax.tree.map(shaped, tree, like)


def slice_shapes(tree: Any, size: int) -> Any:
    """Return the shapes of a device's slices of all leaves."""
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((-(-leaf.size // size),), leaf.dtype), tree
    )


def own_slices(tree: Any, size: int) -> Any:
    """Return this device's slices of a tree that all devices have, inside shard_map."""
    index = jax.lax.axis_index("data")
    return jax.tree.map(
        lambda leaf: jax.lax.dynamic_index_in_dim(
            leaf.reshape(size, -1), index, keepdims=False
        ),
        split(tree, size),
    )


def specs(tree: Any) -> Any:
    """Return the sharding of each leaf: vectors sharded, scalars replicated."""
    return jax.tree.map(lambda leaf: DATA_SHARDED if leaf.ndim else REPLICATED, tree)


def constrain_sharding(tree: Any, axes: Mesh, spec: PartitionSpec) -> Any:
    """Constrain the sharding of a tree inside a compiled function."""
    return jax.lax.with_sharding_constraint(tree, NamedSharding(axes, spec))


def gather_slices(shards: Any, like: Any) -> Any:
    """All-gather the slices of all leaves, inside shard_map.

    Its transpose is a reduce-scatter: gradients come out in slices, summed.
    """
    unsliced = jax.tree.map(
        partial(jax.lax.all_gather, axis_name="data", tiled=True), shards
    )
    return join(unsliced, like)


def sum_into_slices(tree: Any, size: int) -> Any:
    """Return a device's slices of the sum of all devices' trees, inside shard_map."""
    return jax.tree.map(
        partial(jax.lax.psum_scatter, axis_name="data", tiled=True), split(tree, size)
    )
