"""Sums over the axes of a mesh that make a device's gradients whole, and their norm.

    data     every leaf: the mean over replicas
    tensor   whole leaves whose layers see a part of the sequence
    stage    what several parts read, such as a table that embeds and predicts

A device's gradients in (inside shard_map), those of the whole minibatch out.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dml.strategies.hybrid.parts import Held, Part, cut, entries, paths
from dml.types import Tensor
from dml.update.dense import statistics
from dml.wire.mesh.packed import (
    Packing,
    Vectors,
    add,
    empty,
    named,
    packing,
    read,
    write,
)
from dml.wire.mesh.when import when


def summed(held: Held, model: Tensor, grads: Vectors) -> Vectors:
    """Return gradients that are alike wherever params are."""
    replicas = jax.lax.axis_size("data")
    grads = jax.tree.map(lambda one: jax.lax.psum(one, "data") / replicas, grads)
    return over_stages(held, over_tensor(held, model, grads))


def over_tensor(held: Held, model: Tensor, grads: Vectors) -> Vectors:
    """Sum the leaves that the model calls partial."""
    stage = jax.lax.axis_index("stage")
    for part in held.parts:
        if partial_leaves(part, model).like:
            does = partial(part_over_tensor, held, model, part)
            grads = when(stage == part.stage, does, grads)
    return grads


def part_over_tensor(held: Held, model: Tensor, part: Part, grads: Vectors) -> Vectors:
    """Sum those of one part; its devices alone call this."""
    some = partial_leaves(part, model)
    found = jax.lax.psum(read(grads, some, held.base(part)), "tensor")
    return write(grads, some, found, held.base(part))


def partial_leaves(part: Part, model: Tensor) -> Packing:
    """Return where the leaves lie of which every device has a part of the gradient."""
    wanted = {path for path, is_partial in paths(model.partial).items() if is_partial}
    return chosen(part.params, wanted)


def over_stages(held: Held, grads: Vectors) -> Vectors:
    """Sum what several parts read, and give all of them the sum."""
    names = shared(held.parts)
    if not names:
        return grads
    shapes: dict[str, Any] = {}
    for part in held.parts:
        shapes |= part.params.tree.unflatten(part.params.like)
    common = packing({name: shapes[name] for name in names})

    def collects(part: Part, total: Vectors) -> Vectors:
        mine = [name for name in part.names if name in names]
        found = read(grads, named(part.params, mine), held.base(part))
        return add(total, named(common, mine), found)

    def takes(part: Part, grads: Vectors) -> Vectors:
        mine = [name for name in part.names if name in names]
        found = read(total, named(common, mine))
        return write(grads, named(part.params, mine), found, held.base(part))

    stage, total = jax.lax.axis_index("stage"), empty(common.lengths)
    for part in held.parts:
        total = when(stage == part.stage, partial(collects, part), total)
    total = jax.lax.psum(total, "stage")
    for part in held.parts:
        grads = when(stage == part.stage, partial(takes, part), grads)
    return grads


def shared(parts: Sequence[Part]) -> list[str]:
    """Return the names that more than one part reads."""
    read_by = [name for part in parts for name in part.names]
    return [name for name in dict.fromkeys(read_by) if read_by.count(name) > 1]


def norm(held: Held, grads: Vectors) -> jax.Array:
    """Return the norm of all weights together, each counted once."""
    size, whole, seen = held.axes.shape["tensor"], paths(held.like), set[str]()

    def squares(part: Part, some: Packing, copies: list[int], total: Any) -> Any:
        leaves = read(grads, some, held.base(part))
        sums = [jnp.sum(jnp.square(jnp.float32(leaf))) for leaf in leaves]
        return total + sum(one / n for one, n in zip(sums, copies, strict=True))

    stage, square = jax.lax.axis_index("stage"), jnp.float32(0)
    for part, packed in zip(held.parts, held.packed, strict=True):
        shapes = {path: like.shape for path, like, _ in entries(packed)}
        fresh = set(shapes) - seen - running(packed)
        seen |= fresh
        copies = [
            size if cut(whole[path].shape, shape) is None else 1
            for path, shape in shapes.items()
            if path in fresh
        ]
        adds = partial(squares, part, chosen(packed, fresh), copies)
        square = when(stage == part.stage, adds, square)
    return jnp.sqrt(jax.lax.psum(square, ("stage", "tensor")))


def clipped(held: Held, grads: Vectors, limit: float) -> Vectors:
    """Shorten gradients whose norm is above the limit; not of running statistics."""
    length = norm(held, grads)

    def shorter(one: jax.Array) -> jax.Array:
        return jnp.where(length < limit, one, one / length.astype(one.dtype) * limit)

    def spares(some: Packing, at: dict[str, int], short: Vectors) -> Vectors:
        return write(short, some, read(grads, some, at), at)

    stage, short = jax.lax.axis_index("stage"), jax.tree.map(shorter, grads)
    for part in held.parts:
        some = chosen(part.params, running(part.params))
        if some.like:
            does = partial(spares, some, held.base(part))
            short = when(stage == part.stage, does, short)
    return short


def running(packed: Packing) -> set[str]:
    """Return the paths of running statistics, which are no weights."""
    found = paths(statistics(packed.tree.unflatten(packed.like)))
    return {path for path, is_one in found.items() if is_one}


def chosen(packed: Packing, wanted: set[str]) -> Packing:
    """Return where some leaves lie, as a list of them."""
    some = [(like, at) for path, like, at in entries(packed) if path in wanted]
    likes, offsets = [like for like, _ in some], tuple(at for _, at in some)
    return packing(likes)._replace(offsets=offsets)
