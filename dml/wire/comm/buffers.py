"""Flat vectors for the wire: registered memory, and pytrees packed into it.

Gradients are packed into one contiguous vector for a collective, and unpacked.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from dml.types import BadInput, Comm, Region, Registered
from dml.wire.comm.once import one_host

ALIGN = 64  # bytes: a cache line


def flat(comm: Comm, buffer: np.ndarray) -> np.ndarray:
    """View a buffer as one vector; raise if that needs a copy."""
    if not isinstance(buffer, np.ndarray):
        problem = f"a {type(buffer).__name__}; pass a numpy array"
    elif buffer.dtype.kind not in "biufc":
        problem = f"dtype {buffer.dtype}; pass numbers"
    elif not buffer.flags.c_contiguous:
        problem = f"strides {buffer.strides}; pass np.ascontiguousarray(buffer)"
    elif not buffer.flags.writeable:
        problem = "a read-only array; pass buffer.copy()"
    else:
        return buffer if buffer.ndim == 1 else buffer.reshape(-1)
    raise BadInput(
        f"rank {comm.rank}: expected a contiguous writeable buffer, got {problem}"
    )


def allocate(comm: Comm, length: int, dtype: Any = np.float32) -> np.ndarray:
    """Allocate a zeroed vector of registered memory on every rank; collective.

    On one host that is a shared window, which `shared` reduces without a copy; ranks
    that span hosts get plain memory. It begins at a cache line and is valid
    until `release`.
    """
    dtype = np.dtype(dtype)
    nbytes = length * dtype.itemsize
    if not one_host(comm):
        memory = np.zeros(nbytes + ALIGN, np.uint8)
        start = -address(memory) % ALIGN
        return memory[start : start + nbytes].view(dtype)
    window = comm.platform.shared_window((1 + max(1, -(-nbytes // ALIGN))) * ALIGN)
    parts = window.parts
    if comm.size == 1:  # MPI aligns memory of several ranks only
        parts = [parts[0][-address(parts[0]) % ALIGN :]]
    own = parts[comm.rank]
    own[:] = 0  # the first touch places the pages
    start = address(own)
    region = Region(window, parts, start, start + len(own))
    comm.cache.regions.append(region)
    return own[:nbytes].view(dtype)


def release(comm: Comm, buffer: np.ndarray) -> None:
    """Free memory of `allocate`; collective."""
    region = find(comm, address(buffer))
    comm.cache.chunks.clear()
    if region:
        comm.cache.regions.remove(region)
        region.window.Free()


def stored(buffer: np.ndarray) -> bool:
    """Return whether a vector has memory of its own; a sim.Phantom has none."""
    return buffer.strides != (0,)


def find(comm: Comm, start: int) -> Region | None:
    for region in comm.cache.regions:
        if region.start <= start < region.stop:
            return region
    return None


def peers(comm: Comm, buffer: np.ndarray) -> Registered | None:
    """Return all ranks' views of a registered buffer; None for a plain buffer."""
    start = address(buffer)
    region = find(comm, start)
    if region is None:
        if comm.cache.parent is None:
            return None
        parent, members = (
            comm.cache.parent
        )  # regions of the parent are usable in its groups
        found = peers(parent, buffer)
        return found and (found[0], [found[1][member] for member in members])
    here = slice(start - region.start, start - region.start + buffer.nbytes)
    return region.window, [part[here].view(buffer.dtype) for part in region.parts]


def registered(comm: Comm, buffer: np.ndarray) -> bool:
    """Return whether `peers` knows a buffer."""
    if find(comm, address(buffer)):
        return True
    parent = comm.cache.parent
    return parent is not None and registered(parent[0], buffer)


def place(comm: Comm, buffer: np.ndarray) -> int | None:
    """Return the offset of a buffer in its registered memory; None if it is plain."""
    region = find(comm, address(buffer))
    return region and address(buffer) - region.start


def address(buffer: np.ndarray) -> int:
    return buffer.__array_interface__["data"][0]


class Layout(NamedTuple):
    """Positions of the leaves of a pytree in a vector."""

    tree: Any  # its structure; None is a single numpy array
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype, ...]
    length: int


def layout(tree: Any) -> Layout:
    """Return the layout of a pytree's leaves in a vector, one after another."""
    if isinstance(tree, np.ndarray):  # strategies of rows run without JAX
        return Layout(None, (tree.shape,), (tree.dtype,), tree.size)
    import jax

    leaves, structure = jax.tree.flatten(tree)
    shapes = tuple(np.shape(leaf) for leaf in leaves)
    dtypes = tuple(np.dtype(leaf.dtype) for leaf in leaves)
    return Layout(structure, shapes, dtypes, sum(map(math.prod, shapes)))


def pack(tree: Any, buffer: np.ndarray, weight: float = 1.0) -> None:
    """Copy a pytree's leaves, times a weight, one after another into a vector."""
    import jax

    start, factor = 0, buffer.dtype.type(weight)
    for leaf in jax.tree.leaves(tree):
        values = np.asarray(leaf).reshape(-1)
        into = buffer[start : start + len(values)]
        start += len(values)
        if weight == 1:
            into[:] = values
        else:
            np.multiply(values, factor, out=into, casting="unsafe")


def unpack(buffer: np.ndarray, layout: Layout, copy: bool = True) -> Any:
    """Return a vector as a pytree of arrays: copies, or views where dtypes agree."""
    leaves, start = [], 0
    for shape, dtype in zip(layout.shapes, layout.dtypes, strict=True):
        stop = start + math.prod(shape)
        leaves.append(buffer[start:stop].reshape(shape).astype(dtype, copy=copy))
        start = stop
    if layout.tree is None:
        return leaves[0]
    import jax

    return jax.tree.unflatten(layout.tree, leaves)
