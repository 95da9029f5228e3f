"""Device memory of a fixed capacity, with copies of buffers in host memory.

    device memory   params/b1  params/b2  output/3  …  ≤ capacity, which is checked
                      ▲ fetch     │ write back          one copy lane, in order
    host memory     params/b0  params/b1  state/b0   …

Memory kinds of JAX are used: `pinned_host` on accelerators, from which a copy is direct
memory access, and on CPUs, where both memories are RAM and each move is a copy too.
"""

import zlib
from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from dml.wire.plans.offloading.offload import FETCH, Move

HOST = "pinned_host"  # memory kind


class Exceeded(RuntimeError):
    """Raised if a plan needs more device memory than the capacity."""


class DeviceMemory:
    """Buffers, each a pytree, in device memory, host memory, or both.

    Args:
      capacity: Bytes of device memory.
      background: Whether a thread moves buffers, while operations are computed.
    """

    def __init__(self, capacity: int, background: bool) -> None:
        device = jax.local_devices()[0]
        self.on_device = SingleDeviceSharding(device)
        self.on_host = SingleDeviceSharding(device, memory_kind=HOST)
        self.capacity, self.used, self.peak = capacity, 0, 0
        self.moved: Counter[str] = Counter()  # bytes since the last lap, by kind
        self.order = 0  # checksum of the accesses since the last lap
        self.values: dict[str, Any] = {}  # in device memory
        self.copies: dict[str, Any] = {}  # in host memory; equal to values if in both
        self.lane = ThreadPoolExecutor(1, "offload") if background else None
        # deadlines and results: the copied bytes
        self.moving: deque[tuple[Move, Callable[[], int]]] = deque()
        self.lock = Lock()

    def __getitem__(self, name: str) -> Any:
        """Return a buffer for an operation; it must be in device memory."""
        self.order = zlib.crc32(f"read {name}".encode(), self.order)
        return self.values[name]

    def reserve(self, nbytes: int) -> None:
        """Count bytes as used; raise Exceeded if they do not fit."""
        with self.lock:
            self.used += nbytes
            self.peak = max(self.peak, self.used)
            if self.used > self.capacity:
                raise Exceeded(
                    f"expected at most {self.capacity:,} bytes of device memory, got "
                    f"{self.used:,}; correct the plan"
                )

    def release(self, nbytes: int) -> None:
        """Count bytes as free."""
        with self.lock:
            self.used -= nbytes

    def store(self, name: str, value: Any) -> None:
        """Replace a buffer by the result of an operation; its bytes are reserved."""
        self.order = zlib.crc32(f"write {name}".encode(), self.order)
        self.values[name] = value  # frees the old value
        self.copies.pop(name, None)  # has the old content

    def store_on_host(self, name: str, value: Any) -> None:
        """Store a buffer in host memory."""
        self.copies[name] = jax.device_put(value, self.on_host)

    def drop(self, name: str) -> None:
        """Free the device memory of a buffer."""
        freed = nbytes(self.values[name])
        del self.values[name]
        self.release(freed)

    def put(self, tree: Any) -> Any:
        """Return a copy of a tree on the host in device memory."""
        return jax.device_put(tree, self.on_device, may_alias=False)

    def submit(self, move: Move) -> None:
        """Start a move after all previous ones."""
        if self.lane is None:
            copied = self.copy(move)
            self.moving.append((move, lambda: copied))
        else:
            self.moving.append((move, self.lane.submit(self.copy, move).result))

    def copy(self, move: Move) -> int:
        """Fetch or evict a buffer; return the bytes that were copied."""
        name = move.buffer
        if move.kind == FETCH:
            self.reserve(move.nbytes)
            copied = jax.block_until_ready(self.put(self.copies[name]))
            self.values[name] = copied
            return nbytes(copied)
        new = name not in self.copies  # changed since it was fetched
        if new:
            self.store_on_host(name, self.values[name])
            jax.block_until_ready(self.copies[name])
        self.drop(name)
        return nbytes(self.copies[name]) if new else 0

    def wait(self, deadline: int) -> None:
        """Wait for the moves up to a deadline."""
        while self.moving and self.moving[0][0].deadline <= deadline:
            move, result = self.moving.popleft()
            self.moved[move.kind] += result()

    def drain(self) -> None:
        """Wait for all moves, and count them with those of the next lap."""
        if self.moving:
            self.wait(self.moving[-1][0].deadline)

    def resident(self) -> Mapping[str, bool]:
        """Return the buffers in device memory, and whether each must be copied back."""
        return {name: name not in self.copies for name in self.values}

    def collect(self, name: str) -> Any:
        """Return a copy of a buffer as NumPy arrays, also while it is moved."""
        value = self.values.get(name)  # first: an eviction adds the copy before it ends
        tree = self.copies.get(name)
        if tree is None:
            # A NumPy view of the buffer would prevent its donation to an operation.
            tree = jax.device_put(value, self.on_host)
        return jax.tree.map(np.array, jax.device_get(tree))

    def lap(self) -> tuple[Counter[str], int]:
        """Return the bytes moved and the checksum of accesses, and reset them."""
        counted = self.moved, self.order
        self.moved, self.order = Counter(), 0
        return counted

    def close(self) -> None:
        """End the thread after its moves; buffers can still be collected."""
        if self.lane:
            self.lane.shutdown()


def nbytes(tree: Any) -> int:
    """Return the bytes of arrays, or of arrays of these shapes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
