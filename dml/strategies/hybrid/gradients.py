"""Sums of gradients over the axes of a mesh, their norm and their clipping.

    data     all leaves: the mean over replicas, and over devices of `sequence`
    tensor   replicated leaves whose layers process slices of the sequence
    stage    params of several parts, such as a table that embeds and predicts

All functions run inside shard_map, on the gradients of one device.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dml.strategies.hybrid.layout import Layout, each_part
from dml.strategies.hybrid.parts import Part, shared
from dml.types import Tensor
from dml.update.dense import statistics
from dml.wire.mesh.axes import replicas
from dml.wire.mesh.packed import Packing, Vectors, add, packing, read, write, zeros


def all_reduce_grads(layout: Layout, model: Tensor, grads: Vectors) -> Vectors:
    """Return gradients that are equal wherever params are equal."""
    names = replicas(layout.axes)
    count = jax.lax.axis_size(names)
    grads = jax.tree.map(lambda leaf: jax.lax.psum(leaf, names) / count, grads)
    return over_stages(layout, over_tensor(layout, model, grads))


def over_tensor(layout: Layout, model: Tensor, grads: Vectors) -> Vectors:
    """Sum the leaves that the model calls partial, in all parts."""
    parts = [part for part in layout.parts if partial_leaves(part, model).shapes]
    return each_part(parts, partial(part_over_tensor, layout, model), grads)


def part_over_tensor(
    layout: Layout, model: Tensor, part: Part, grads: Vectors
) -> Vectors:
    """Sum the partial leaves of one part, on the devices of its stage."""
    leaves, start = partial_leaves(part, model), layout.start(part)
    sums = jax.lax.psum(read(grads, leaves, start), "tensor")
    return write(grads, leaves, sums, start)


def partial_leaves(part: Part, model: Tensor) -> Packing:
    """Return the leaves whose gradient is a sum over the devices of `tensor`."""
    return part.params.select({name: model.partial[name] for name in part.names})


def over_stages(layout: Layout, grads: Vectors) -> Vectors:
    """Sum the gradients of params that several parts read, on all of them."""
    names = shared(layout.parts)
    if not names:
        return grads
    shapes: dict[str, Any] = {}
    for part in layout.parts:
        shapes |= part.params.shapes
    common = packing({name: shapes[name] for name in names})

    def collect(part: Part, total: Vectors) -> Vectors:
        params = part.params.pick(set(part.names) & set(names))
        summand = read(grads, params, layout.start(part))
        return add(total, common.pick(params.shapes), summand)

    def distribute(part: Part, grads: Vectors) -> Vectors:
        params = part.params.pick(set(part.names) & set(names))
        sums = read(total, common.pick(params.shapes))
        return write(grads, params, sums, layout.start(part))

    total = each_part(layout.parts, collect, zeros(common.lengths))
    total = jax.lax.psum(total, "stage")
    return each_part(layout.parts, distribute, grads)


def norm(layout: Layout, grads: Vectors) -> jax.Array:
    """Return the norm of the gradients of all weights, each counted once."""
    size = layout.axes.shape["tensor"]
    first = {name: part for part in reversed(layout.parts) for name in part.names}

    def add_squares(part: Part, total: Any) -> Any:
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
            / (size if leaf.shape == full.shape else 1)
            for leaf, full, is_statistic in leaves
            if not is_statistic
        ]
        return total + sum(squares)

    square = each_part(layout.parts, add_squares, jnp.float32(0))
    return jnp.sqrt(jax.lax.psum(square, ("stage", "tensor")))


def clipped(layout: Layout, grads: Vectors, limit: float) -> Vectors:
    """Scale gradients to at most this norm; running statistics are not clipped."""
    length = norm(layout, grads)

    def scaled(leaf: jax.Array) -> jax.Array:
        clipped = leaf / length.astype(leaf.dtype) * limit
        return jnp.where(length < limit, leaf, clipped)

    def running(part: Part) -> Packing:
        return part.params.select(statistics(part.params.shapes))

    def restore(part: Part, clipped: Vectors) -> Vectors:
        start = layout.start(part)
        return write(clipped, running(part), read(grads, running(part), start), start)

    parts = [part for part in layout.parts if running(part).shapes]
    return each_part(parts, restore, jax.tree.map(scaled, grads))
