"""Shared memory of the ranks of a host: zeroed vectors, and trees of arrays."""

import io
import pickle
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from dml.types import Comm
from dml.wire.messages.broadcast import broadcast
from dml.wire.messages.first import first_of_each_host

ALIGNED = 64  # bytes: a cache line
Tree = TypeVar("Tree")
Part = tuple[int, np.ndarray]  # an offset in memory, and the array


def share(comm: Comm, length: int, dtype: Any = np.float32) -> np.ndarray:
    """Allocate one zeroed vector that all ranks of a host share; collective.

    It is freed when the run ends. A rank alone on its host has plain memory, as the
    number of windows is limited.
    """
    dtype = np.dtype(dtype)
    host = own_host(comm)
    if host.size == 1:
        return np.zeros(length, dtype)
    nbytes = length * dtype.itemsize if host.rank == 0 else 0
    window = host.platform.shared_window(nbytes)
    vector = window.parts[0][: length * dtype.itemsize].view(dtype)
    if host.rank == 0:
        vector[:] = 0
    host.Barrier()
    return vector


def place(comm: Comm, load: Callable[[], Tree]) -> Tree:
    """Return the value that one rank of each host loads; its arrays are shared.

    It is a tree of arrays and of values that can be pickled. The other ranks sleep
    while it loads.
    """
    host, parts = own_host(comm), list[Part]()

    def outlined() -> np.ndarray:
        found = outline(load(), parts) if host.rank == 0 else b""
        return np.frombuffer(found, np.uint8)

    text = first_of_each_host(comm, outlined)
    sizes = np.array([len(text), end(parts)])
    broadcast(host, sizes)
    text = text.copy() if host.rank == 0 else np.empty(sizes[0], np.uint8)
    broadcast(host, text)
    memory = share(host, int(sizes[1]), np.uint8)
    for at, array in parts:
        view(memory, at, array.dtype, array.shape)[...] = array
    host.Barrier()
    return filled(text.tobytes(), memory)


def outline(tree: Any, parts: list[Part]) -> bytes:
    """Pickle a tree without its arrays, whose offsets in memory are added to parts."""

    class Outline(pickle.Pickler):
        def persistent_id(self, one: Any) -> tuple | None:
            if not isinstance(one, np.ndarray):
                return None
            parts.append((end(parts), one))
            return parts[-1][0], one.dtype, one.shape

    text = io.BytesIO()
    Outline(text).dump(tree)
    return text.getvalue()


def filled(text: bytes, memory: np.ndarray) -> Any:
    """Return the tree of an outline, with its arrays as views of memory."""

    class Filled(pickle.Unpickler):
        def persistent_load(self, one: tuple) -> np.ndarray:
            return view(memory, *one)

    return Filled(io.BytesIO(text)).load()


def end(parts: list[Part]) -> int:
    """Return the offset of the next part."""
    if not parts:
        return 0
    at, array = parts[-1]
    return -(-(at + array.nbytes) // ALIGNED) * ALIGNED


def view(memory: np.ndarray, at: int, dtype: np.dtype, shape: Any) -> np.ndarray:
    """Return the array at an offset in memory."""
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return memory[at : at + nbytes].view(dtype).reshape(shape)


def own_host(comm: Comm) -> Comm:
    """Return the ranks of this rank's host."""
    hosts = comm.platform.hosts()
    return comm.Split(hosts[comm.rank], comm.rank) if max(hosts) else comm
