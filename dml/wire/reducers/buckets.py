"""Gradient buckets: a full bucket is reduced while the backward pass continues.

    names     b3 b2 │ b1 b0 │ embed loss        in the order of the backward pass
    buckets   └─ 0 ─┘ └─ 1 ─┘ └─── 2 ───┘       parts of one piece of registered memory

All ranks have the same buckets.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dml.types import Comm, Grads, Params
from dml.wire.comm.buffers import ALIGN, Layout, address, allocate, layout, pack, unpack
from dml.wire.comm.once import once


class Bucket(NamedTuple):
    """Parameters whose gradients are reduced together."""

    names: tuple[str, ...]  # names of the parameters
    buffer: np.ndarray  # the gradients, then the scalars of the last bucket
    layout: Layout  # layout of {name: gradient} in the buffer


def buckets(
    comm: Comm,
    params: Mapping[str, Params],
    order: Sequence[str],
    nbytes: float,
    scalars: int = 0,
) -> list[Bucket]:
    """Divide parameters into buckets, and allocate their memory; collective.

    Args:
      comm: The ranks that reduce.
      params: Parameters by name.
      order: The names, in the order of the backward pass.
      nbytes: A bucket is complete when it has this size or more.
      scalars: Number of scalars at the end of the last bucket.
    """
    key = tuple(map(id, params.values())), tuple(order), nbytes, scalars
    parts, length, dtype = once(
        comm, "buckets", key, lambda: divide(params, order, nbytes, scalars)
    )
    memory = allocate(comm, length, dtype)
    return [Bucket(names, memory[part], layout) for names, part, layout in parts]


def divide(
    params: Mapping[str, Params], order: Sequence[str], nbytes: float, scalars: int
) -> tuple[list[tuple[tuple[str, ...], slice, Layout]], int, np.dtype]:
    """Return (names, part of the memory, layout) of each bucket.

    Also return the length and the dtype of the memory. Buckets start at cache lines.
    """
    groups: list[list[str]] = [[]]
    filled = 0  # bytes of the last group
    for name in order:
        if groups[-1] and filled >= nbytes:
            groups.append([])
            filled = 0
        groups[-1].append(name)
        filled += _nbytes(layout(params[name]))
    layouts = [layout({name: params[name] for name in group}) for group in groups]
    dtype = np.result_type(*(kind for each in layouts for kind in each.dtypes))
    lengths = [each.length for each in layouts]
    lengths[-1] += scalars
    line = ALIGN // dtype.itemsize
    starts = np.cumsum([0, *(-(-length // line) * line for length in lengths)]).tolist()
    parts = [
        (tuple(names), slice(start, start + length), group_layout)
        for names, start, length, group_layout in zip(
            groups, starts, lengths, layouts, strict=False
        )
    ]
    return parts, starts[-1], dtype


def fill(bucket: Bucket, grads: Mapping[str, Grads] | None, weight: float) -> int:
    """Write this rank's term of the global mean to the bucket; return its bytes.

    Args:
      bucket: The bucket.
      grads: Gradients by name; None writes zeros.
      weight: This rank's share of the examples. On one rank it is exactly 1.0, which
        changes no bit, so one rank computes the serial result.
    """
    length = bucket.layout.length
    if grads is None:
        bucket.buffer[:length] = 0
    else:
        pack({name: grads[name] for name in bucket.names}, bucket.buffer, weight)
    return length * bucket.buffer.itemsize


def gradient_views(bucket: Bucket) -> tuple[dict[str, Grads], int]:
    """Return views of a bucket's gradients, and the bytes that a device must copy.

    A device reads arrays that start at a cache line in place: do not write to the
    bucket until it has finished.
    """
    import jax

    grads = unpack(bucket.buffer[: bucket.layout.length], bucket.layout, copy=False)
    return grads, sum(
        leaf.nbytes for leaf in jax.tree.leaves(grads) if address(leaf) % ALIGN
    )


def _nbytes(layout: Layout) -> int:
    return sum(
        math.prod(shape) * dtype.itemsize
        for shape, dtype in zip(layout.shapes, layout.dtypes, strict=True)
    )
