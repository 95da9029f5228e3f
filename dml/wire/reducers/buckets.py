"""Gradient buckets: a full bucket is reduced while the backward pass continues.

names     b3 b2 │ b1 b0 │ embed loss        in the order of the backward pass
buckets   └─ 0 ─┘ └─ 1 ─┘ └─── 2 ───┘       parts of one piece of registered memory
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dml.types import Comm, Grads, Params
from dml.wire.comm.buffers import ALIGN, Layout, address, allocate, layout, pack, unpack


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
    groups: list[list[str]] = [[]]
    size = 0
    for name in order:
        if groups[-1] and size >= nbytes:
            groups.append([])
            size = 0
        groups[-1].append(name)
        size += _nbytes(layout(params[name]))
    layouts = [layout({name: params[name] for name in group}) for group in groups]
    dtype = np.result_type(*(kind for one in layouts for kind in one.dtypes))
    lengths = [one.length for one in layouts]
    lengths[-1] += scalars
    aligned = ALIGN // dtype.itemsize
    starts = np.cumsum([0, *(-(-length // aligned) * aligned for length in lengths)])
    memory = allocate(comm, int(starts[-1]), dtype)
    return [
        Bucket(tuple(group), memory[start : start + length], group_layout)
        for group, group_layout, start, length in zip(
            groups, layouts, starts, lengths, strict=False
        )
    ]


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
        int(np.prod(shape)) * dtype.itemsize
        for shape, dtype in zip(layout.shapes, layout.dtypes, strict=True)
    )
