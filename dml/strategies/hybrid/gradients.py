"""Sums of gradients over the axes of a mesh, and clipping by the norm.

    axis     leaves that are summed over the devices of the axis
    data     all leaves, divided by the number of replicas; also over `sequence`
    tensor   replicated leaves of layers that process slices of the sequence
    stage    params that several parts read, such as a table that embeds and predicts

All functions run inside shard_map, on the gradients of one device.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dml.strategies.hybrid.layout import StageLayout, apply_to_parts
from dml.strategies.hybrid.parts import StagePart, shared_names
from dml.types import Tensor
from dml.update.dense import statistics
from dml.wire.mesh.axes import replicas
from dml.wire.mesh.packed import Packing, Vectors, add, packing, read, write, zeros


def all_reduce_grads(layout: StageLayout, model: Tensor, grads: Vectors) -> Vectors:
    """Return gradients that are equal wherever params are equal."""
    names = replicas(layout.axes)
    count = jax.lax.axis_size(names)
    grads = jax.tree.map(lambda leaf: jax.lax.psum(leaf, names) / count, grads)
    return sum_over_stages(layout, sum_over_tensor(layout, model, grads))


def sum_over_tensor(layout: StageLayout, model: Tensor, grads: Vectors) -> Vectors:
    """Sum the partial leaves of all parts over the axis `tensor`."""
    parts = [part for part in layout.parts if partial_leaves(part, model).shapes]
    return apply_to_parts(parts, partial(sum_part_over_tensor, layout, model), grads)


def sum_part_over_tensor(
    layout: StageLayout, model: Tensor, part: StagePart, grads: Vectors
) -> Vectors:
    """Sum the partial leaves of one part over the axis `tensor`."""
    leaves, start = partial_leaves(part, model), layout.start(part)
    sums = jax.lax.psum(read(grads, leaves, start), "tensor")
    return write(grads, leaves, sums, start)


def partial_leaves(part: StagePart, model: Tensor) -> Packing:
    """Return the leaves of which each device of `tensor` has a term of the gradient."""
    return part.params.select({name: model.partial[name] for name in part.names})


def sum_over_stages(layout: StageLayout, grads: Vectors) -> Vectors:
    """Sum the gradients of params that several parts read; write the sum to each."""
    names = shared_names(layout.parts)
    if not names:
        return grads
    shapes: dict[str, Any] = {}
    for part in layout.parts:
        shapes |= part.params.shapes
    common = packing({name: shapes[name] for name in names})

    def collect(part: StagePart, total: Vectors) -> Vectors:
        params = part.params.pick(set(part.names) & set(names))
        term = read(grads, params, layout.start(part))
        return add(total, common.pick(params.shapes), term)

    def distribute(part: StagePart, grads: Vectors) -> Vectors:
        params = part.params.pick(set(part.names) & set(names))
        sums = read(total, common.pick(params.shapes))
        return write(grads, params, sums, layout.start(part))

    total = apply_to_parts(layout.parts, collect, zeros(common.lengths))
    total = jax.lax.psum(total, "stage")
    return apply_to_parts(layout.parts, distribute, grads)


def norm(layout: StageLayout, grads: Vectors) -> jax.Array:
    """Return the norm of the gradients of all params except running statistics."""
    tensor_size = layout.axes.shape["tensor"]
    # params that several parts read are counted in the first of these parts
    first = {name: part for part in reversed(layout.parts) for name in part.names}

    def add_squares(part: StagePart, total: Any) -> Any:
        params = part.params.pick([n for n in part.names if first[n] is part])
        leaves = zip(
            jax.tree.leaves(read(grads, params, layout.start(part))),
            jax.tree.leaves({name: layout.shapes[name] for name in params.shapes}),
            jax.tree.leaves(statistics(params.shapes)),
            strict=True,
        )
        squares = [
            # a replicated leaf is counted by every device of `tensor`
            jnp.sum(jnp.square(jnp.float32(leaf)))
            / (tensor_size if leaf.shape == full.shape else 1)
            for leaf, full, is_statistic in leaves
            if not is_statistic
        ]
        return total + sum(squares)

    squares = apply_to_parts(layout.parts, add_squares, jnp.float32(0))
    return jnp.sqrt(jax.lax.psum(squares, ("stage", "tensor")))


def clip_by_norm(layout: StageLayout, grads: Vectors, max_norm: float) -> Vectors:
    """Scale gradients to at most this norm; running statistics are not clipped."""
    grads_norm = norm(layout, grads)

    def clip(leaf: jax.Array) -> jax.Array:
        scaled = leaf / grads_norm.astype(leaf.dtype) * max_norm
        return jnp.where(grads_norm < max_norm, leaf, scaled)

    def running_statistics(part: StagePart) -> Packing:
        return part.params.select(statistics(part.params.shapes))

    def restore(part: StagePart, clipped: Vectors) -> Vectors:
        leaves, start = running_statistics(part), layout.start(part)
        return write(clipped, leaves, read(grads, leaves, start), start)

    parts = [part for part in layout.parts if running_statistics(part).shapes]
    return apply_to_parts(parts, restore, jax.tree.map(clip, grads))
