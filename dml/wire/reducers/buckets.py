"""Gradients in buckets: what is done first is on the wire while the rest is computed.

    done      b3 b2 │ b1 b0 │ embed loss        names, in the order of the backward pass
    buckets   └─ 0 ─┘ └─ 1 ─┘ └─── 2 ───┘       runs of one piece of registered memory

Names with their params in, buckets out; gradients are packed into them by name.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dml.types import Comm, Grads, Params
from dml.wire.comm.buffers import ALIGN, Layout, address, allocate, layout, pack, unpack
from dml.wire.comm.once import once


class Bucket(NamedTuple):
    """Names whose gradients travel together, and the memory in which they do."""

    names: tuple[str, ...]
    buffer: np.ndarray
    layout: Layout  # of {name: grads}; what the buffer has beyond it are scalars


def buckets(
    comm: Comm,
    params: Mapping[str, Params],
    order: Sequence[str],
    nbytes: float,
    scalars: int = 0,
) -> list[Bucket]:
    """Cut params, by name and in that order, into buckets; collective.

    A bucket closes when it holds nbytes or more. The last has scalars numbers more.
    """
    key = tuple(map(id, params.values())), tuple(order), nbytes, scalars
    parts, length, dtype = once(
        comm, "buckets", key, lambda: cut(params, order, nbytes, scalars)
    )
    memory = allocate(comm, length, dtype)
    return [Bucket(names, memory[place], layout) for names, place, layout in parts]


def cut(
    params: Mapping[str, Params], order: Sequence[str], nbytes: float, scalars: int
) -> tuple[list[tuple[tuple[str, ...], slice, Layout]], int, np.dtype]:
    """Return the names, the place in memory and the layout of each bucket.

    Also return the length and the dtype of the memory. Buckets begin at cache lines.
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
        (tuple(names), slice(start, start + length), tree)
        for names, start, length, tree in zip(
            groups, starts, lengths, layouts, strict=False
        )
    ]
    return parts, starts[-1], dtype


def fill(bucket: Bucket, grads: Mapping[str, Grads] | None, weight: float) -> int:
    """Write one rank's term of the global mean, and return the bytes; None: zeros.

    The weights are count / global count and add up to 1. One rank's is exactly 1.0,
    which changes no bit: so one rank is serial.
    """
    length = bucket.layout.length
    if grads is None:
        bucket.buffer[:length] = 0
    else:
        pack({name: grads[name] for name in bucket.names}, bucket.buffer, weight)
    return length * bucket.buffer.itemsize


def empty(bucket: Bucket) -> tuple[dict[str, Grads], int]:
    """Return views of a bucket's gradients, and the bytes that a device must copy.

    It reads in place what begins at a cache line: until then the bucket is its own.
    """
    import jax

    grads = unpack(bucket.buffer[: bucket.layout.length], bucket.layout, copy=False)
    return grads, sum(
        leaf.nbytes for leaf in jax.tree.leaves(grads) if address(leaf) % ALIGN
    )


def _nbytes(lies: Layout) -> int:
    return sum(
        math.prod(shape) * dtype.itemsize
        for shape, dtype in zip(lies.shapes, lies.dtypes, strict=True)
    )
