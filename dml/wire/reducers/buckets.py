"""Gradient buckets: a full bucket is reduced while the backward pass continues.

    names     b3 b2 │ b1 b0 │ embed loss        in the order of the backward pass
    buckets   └─ 0 ─┘ └─ 1 ─┘ └─── 2 ───┘       parts of one registered buffer

All ranks have the same buckets. `loss` stands for scalars in the last bucket.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dml.types import Comm, Grads, Params
from dml.wire.comm.buffers import (
    ALIGN,
    TreeLayout,
    address,
    allocate,
    layout,
    pack,
    unpack,
)
from dml.wire.comm.once import once


class Bucket(NamedTuple):
    """Parameters whose gradients are reduced together."""

    names: tuple[str, ...]  # names of the parameters
    buffer: np.ndarray  # the gradients, then the scalars of the last bucket
    layout: TreeLayout  # layout of {name: gradient} in the buffer


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
      order: Names of the parameters, in the order of the backward pass.
      nbytes: Size in bytes from which a bucket is complete.
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
) -> tuple[list[tuple[tuple[str, ...], slice, TreeLayout]], int, np.dtype]:
    """Divide parameters into buckets, which start at cache lines; see `buckets`.

    Returns:
      (names, part of the memory, layout) of each bucket; the length of the memory in
      elements, and its dtype.
    """
    groups: list[list[str]] = [[]]
    filled = 0  # bytes of gradients in the last group
    for name in order:
        if groups[-1] and filled >= nbytes:
            groups.append([])
            filled = 0
        groups[-1].append(name)
        filled += _nbytes(layout(params[name]))
    layouts = [layout({name: params[name] for name in group}) for group in groups]
    dtypes = [dtype for group_layout in layouts for dtype in group_layout.dtypes]
    dtype = np.result_type(
        *(dtypes or [np.dtype(np.float32)])
    )  # without gradients: scalars only
    lengths = [group_layout.length for group_layout in layouts]
    lengths[-1] += scalars
    line = ALIGN // dtype.itemsize  # elements of a cache line
    starts = np.cumsum([0, *(-(-length // line) * line for length in lengths)]).tolist()
    parts = [
        (tuple(names), slice(start, start + length), group_layout)
        for names, start, length, group_layout in zip(
            groups, starts, lengths, layouts, strict=False
        )
    ]
    return parts, starts[-1], dtype


def fill(bucket: Bucket, grads: Mapping[str, Grads] | None, weight: float) -> int:
    """Write this rank's term of the mean to the bucket; return the number of bytes.

    Args:
      bucket: The bucket.
      grads: Gradients by name; None writes zeros.
      weight: This rank's share of the examples. A single rank has exactly 1.0, so its
        result is bit-identical to serial training.
    """
    length = bucket.layout.length
    if grads is None:
        bucket.buffer[:length] = 0
    else:
        pack({name: grads[name] for name in bucket.names}, bucket.buffer, weight)
    return length * bucket.buffer.itemsize


def gradient_views(bucket: Bucket) -> tuple[dict[str, Grads], int]:
    """Return views of a bucket's gradients, and the bytes that JAX must copy.

    JAX on a CPU reads arrays that start at a cache line without a copy: do not write to
    the bucket until the computation has finished.
    """
    import jax

    grads = unpack(bucket.buffer[: bucket.layout.length], bucket.layout, copy=False)
    return grads, sum(
        leaf.nbytes for leaf in jax.tree.leaves(grads) if address(leaf) % ALIGN
    )


def _nbytes(layout: TreeLayout) -> int:
    return sum(
        math.prod(shape) * dtype.itemsize
        for shape, dtype in zip(layout.shapes, layout.dtypes, strict=True)
    )
