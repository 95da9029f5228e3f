"""Buffers of collectives: registered memory, and pytrees packed into vectors.

Registered memory is shared by the ranks of a host; collectives reduce it in place.
Gradients are packed into one contiguous vector for a collective, and unpacked after it.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from dml.types import BadInput, Comm, Region, Registered
from dml.wire.comm.once import one_host
from dml.wire.comm.plain import as_comm

ALIGN = 64  # bytes: a cache line


def flat(comm: Comm, buffer: np.ndarray) -> np.ndarray:
    """View a buffer as one vector; raise BadInput if that would need a copy."""
    if not isinstance(buffer, np.ndarray):
        problem = f"a {type(buffer).__name__}; pass a numpy array"
    elif buffer.dtype.kind not in "biufc":
        problem = f"dtype {buffer.dtype}; pass numbers"
    elif not (flags := buffer.flags).c_contiguous:
        problem = f"strides {buffer.strides}; pass np.ascontiguousarray(buffer)"
    elif not flags.writeable:
        problem = "a read-only array; pass buffer.copy()"
    else:
        return buffer if buffer.ndim == 1 else buffer.reshape(-1)
    raise BadInput(
        f"rank {comm.rank}: expected a contiguous writeable buffer, got {problem}"
    )


def allocate(comm: Comm, length: int, dtype: Any = np.float32) -> np.ndarray:
    """Allocate a zeroed vector of registered memory on every rank; collective.

    If all ranks are on one host, the memory is a shared window, which the all-reduce
    `shared` reduces without a copy; otherwise it is plain memory. The vector begins at
    a cache line and is valid until `release`.

    Args:
      comm: The ranks.
      length: Number of elements.
      dtype: Type of the elements.
    """
    comm, dtype = as_comm(comm), np.dtype(dtype)
    nbytes = length * dtype.itemsize
    if not one_host(comm):
        memory = np.zeros(nbytes + ALIGN, np.uint8)
        start = -address(memory) % ALIGN
        return memory[start : start + nbytes].view(dtype)
    lines = max(1, -(-nbytes // ALIGN)) + 1  # one more to align the start
    window = comm.platform.shared_window(lines * ALIGN)
    parts = window.parts
    if comm.size == 1:  # MPI does not align the memory of a single rank
        parts = [parts[0][-address(parts[0]) % ALIGN :]]
    own = parts[comm.rank]
    own[:] = 0  # the first touch places the pages
    start = address(own)
    region = Region(window, parts, start, start + len(own))
    comm.cache.regions.append(region)
    return own[:nbytes].view(dtype)


def release(comm: Comm, buffer: np.ndarray) -> None:
    """Free a vector that `allocate` returned; collective."""
    comm = as_comm(comm)
    region = find_region(comm, address(buffer))
    comm.cache.chunks.clear()
    if region:
        comm.cache.regions.remove(region)
        region.window.Free()


def has_memory(buffer: np.ndarray) -> bool:
    """Return whether a vector has memory; a sim.Phantom has none."""
    return buffer.strides != (0,)


def find_region(comm: Comm, start: int) -> Region | None:
    """Return the registered memory that contains an address, if any."""
    for region in comm.cache.regions:
        if region.start <= start < region.stop:
            return region
    return None


def registered_views(comm: Comm, buffer: np.ndarray) -> Registered | None:
    """Return the window of a registered buffer, and the buffers of all ranks in it.

    The buffer of another rank has the same offset as `buffer` in that rank's memory.
    Returns None for a plain buffer.
    """
    start = address(buffer)
    region = find_region(comm, start)
    if region is None:
        if comm.cache.parent is None:
            return None
        # memory registered with a communicator can be used in its groups
        parent, members = comm.cache.parent
        parent_views = registered_views(parent, buffer)
        if parent_views is None:
            return None
        window, views = parent_views
        return window, [views[member] for member in members]
    offset = start - region.start
    views = [
        part[offset : offset + buffer.nbytes].view(buffer.dtype)
        for part in region.parts
    ]
    return region.window, views


def is_registered(comm: Comm, buffer: np.ndarray) -> bool:
    """Return whether a buffer is in registered memory."""
    if find_region(comm, address(buffer)):
        return True
    parent = comm.cache.parent
    return parent is not None and is_registered(parent[0], buffer)


def registered_offset(comm: Comm, buffer: np.ndarray) -> int | None:
    """Return a buffer's offset in its registered memory in bytes; None if plain."""
    region = find_region(comm, address(buffer))
    return region and address(buffer) - region.start


def address(buffer: np.ndarray) -> int:
    """Return the address of the first byte."""
    return buffer.__array_interface__["data"][0]


class TreeLayout(NamedTuple):
    """Positions of the leaves of a pytree in a vector."""

    tree: Any  # structure of the pytree; None for a single numpy array
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype, ...]
    length: int  # number of elements of the vector


def layout(tree: Any) -> TreeLayout:
    """Return the layout of a vector that has the leaves of a pytree in order."""
    if isinstance(tree, np.ndarray):  # strategies for tables of rows run without JAX
        return TreeLayout(None, (tree.shape,), (tree.dtype,), tree.size)
    import jax

    leaves, structure = jax.tree.flatten(tree)
    shapes = tuple(np.shape(leaf) for leaf in leaves)
    dtypes = tuple(np.dtype(leaf.dtype) for leaf in leaves)
    return TreeLayout(structure, shapes, dtypes, sum(map(math.prod, shapes)))


def pack(tree: Any, buffer: np.ndarray, weight: float = 1.0) -> None:
    """Copy the leaves of a pytree, times a weight, into a vector in order."""
    import jax

    start, factor = 0, buffer.dtype.type(weight)
    for leaf in jax.tree.leaves(tree):
        values = np.asarray(leaf).reshape(-1)
        target = buffer[start : start + len(values)]
        start += len(values)
        if weight == 1:
            target[:] = values
        else:
            np.multiply(values, factor, out=target, casting="unsafe")


def unpack(buffer: np.ndarray, layout: TreeLayout, copy: bool = True) -> Any:
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
