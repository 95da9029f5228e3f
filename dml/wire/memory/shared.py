"""Memory shared by the ranks of a host: zeroed vectors, and trees of arrays."""

import io
import pickle
from collections.abc import Callable
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np

from dml.types import Comm
from dml.wire.collectives.broadcast import broadcast
from dml.wire.comm.plain import as_comm
from dml.wire.comm.rank_order import first_of_each_host

ALIGNED = 64  # bytes: a cache line
Tree = TypeVar("Tree")


def shared_zeros(comm: Comm, length: int, dtype: Any = np.float32) -> np.ndarray:
    """Allocate a zeroed vector shared by the ranks of a host; collective.

    It is freed at the end of the run. A single rank on its host uses private memory,
    because the number of windows is limited.
    """
    dtype = np.dtype(dtype)
    host = own_host(as_comm(comm))
    if host.size == 1:
        return np.zeros(length, dtype)
    nbytes = length * dtype.itemsize if host.rank == 0 else 0
    window = host.platform.shared_window(nbytes)
    vector = window.parts[0][: length * dtype.itemsize].view(dtype)
    if host.rank == 0:
        vector[:] = 0
    host.Barrier()
    return vector


def load_shared(comm: Comm, load: Callable[[], Tree]) -> Tree:
    """Call load() on the first rank of each host; return its result on all ranks.

    The ranks of a host share the memory of the arrays. The other ranks wait without
    using their cores. Collective.

    Args:
      comm: The ranks.
      load: Function without arguments that returns arrays and picklable values.
    """
    comm = as_comm(comm)
    host, arrays = own_host(comm), list[memoryview]()

    def pickle_tree() -> np.ndarray:
        """Append the arrays to `arrays`; return the rest, pickled, and their sizes."""
        if host.rank:
            return np.empty(0, np.uint8)
        stream = io.BytesIO()
        pickler = Pickler(stream, 5, buffer_callback=lambda b: arrays.append(b.raw()))
        pickler.dump(load())
        tree = stream.getvalue(), [array.nbytes for array in arrays]
        return np.frombuffer(pickle.dumps(tree), np.uint8)

    pickled = first_of_each_host(comm, pickle_tree)
    size = np.array([len(pickled)])
    broadcast(host, size)
    pickled = pickled.copy() if host.rank == 0 else np.empty(size[0], np.uint8)
    broadcast(host, pickled)
    tree, lengths = pickle.loads(pickled.tobytes())
    aligned = (-(-length // ALIGNED) * ALIGNED for length in lengths)
    starts = list(accumulate(aligned, initial=0))
    memory = shared_zeros(host, starts[-1], np.uint8)
    views = [
        memory[start : start + length]
        for start, length in zip(starts[:-1], lengths, strict=True)
    ]
    if host.rank == 0:
        for view, array in zip(views, arrays, strict=True):
            view[:] = array
    host.Barrier()
    return pickle.loads(tree, buffers=views)


class Pickler(pickle.Pickler):
    """Pickler that passes arrays to the buffer callback, contiguous and writable."""

    def reducer_override(self, value: Any) -> Any:
        """Reduce an array with out-of-band data; other values are pickled as usual."""
        if not isinstance(value, np.ndarray):
            return NotImplemented
        return np.require(value, None, ["C", "W"]).__reduce_ex__(5)


def own_host(comm: Comm) -> Comm:
    """Return the communicator of the ranks of this rank's host; collective."""
    hosts = comm.platform.hosts()
    return comm.Split(hosts[comm.rank], comm.rank) if max(hosts) else comm
