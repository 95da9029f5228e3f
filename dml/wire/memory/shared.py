"""Memory that all ranks of a host see: zeroed vectors, and whole trees of arrays."""

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
Part = tuple[int, np.ndarray]  # where in memory, and what


def share(comm: Comm, length: int, dtype: Any = np.float32) -> np.ndarray:
    """Give the ranks of each host one zeroed vector that they all see; collective.

    It lives as long as the run, and goes with it, however that ends. A rank alone on
    its host has plain memory: windows are few.
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
    """Return what one rank of each host loads; its arrays are once in memory, for all.

    It is a tree of arrays and of what can be pickled. The others sleep meanwhile.
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
    """Pickle a tree without its arrays, to which parts gives places in memory."""

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
    """Return the tree of an outline, with its arrays as they lie in memory."""

    class Filled(pickle.Unpickler):
        def persistent_load(self, one: tuple) -> np.ndarray:
            return view(memory, *one)

    return Filled(io.BytesIO(text)).load()


def end(parts: list[Part]) -> int:
    """Return where the next part begins."""
    if not parts:
        return 0
    at, array = parts[-1]
    return -(-(at + array.nbytes) // ALIGNED) * ALIGNED


def view(memory: np.ndarray, at: int, dtype: np.dtype, shape: Any) -> np.ndarray:
    """Return the array that lies in memory from there on."""
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return memory[at : at + nbytes].view(dtype).reshape(shape)


def own_host(comm: Comm) -> Comm:
    """Return the ranks of this rank's host."""
    hosts = comm.platform.hosts()
    return comm.Split(hosts[comm.rank], comm.rank) if max(hosts) else comm
