"""Shared memory through which workers and servers of one host exchange large values.

    worker                               server
      │ copy the gradient to a slot
      │ ── PUSH, slot ─────────────────────► │ apply the gradient; free the slot
      │ ── PULL keys, slot ────────────────► │ gather the rows into the slot
      │ ◄─ clock, version, applied, rows ─── │
      │ copy the rows out; free the slot

The worker selects the slot, and the message has its number. Values are sent as messages
if both slots are in use, so that no rank waits for a slot, or if a slot is too small.
Ranges of rows that are pulled are always sent as messages, which need no copy.
"""

from typing import NamedTuple

import numpy as np

from dml.types import CountedComm, Window, no_op
from dml.wire.comm.metered import uncounted
from dml.wire.comm.once import one_host
from dml.wire.costs.server import INLINE
from dml.wire.plans.partition import Partition
from dml.wire.server.header import SECOND, SLOT
from dml.wire.server.validation import Malformed

LINE = 64  # bytes of a cache line, and of the flag before a slot
COUNT = 2  # slots of a worker, a server and a direction: one is filled, one is read
MAX_NBYTES = 1 << 26  # of all slots of a host


class Slots:
    """The slots of a worker and a server for values in one direction.

    memory: bytes of the slots; each begins with a flag that is 1 while it is in use.
    """

    def __init__(self, memory: np.ndarray):
        slots = memory.reshape(COUNT, -1)
        # A rank writes a flag or values only while the slot belongs to it. Its stores
        # are visible before its next message or flag: x86 keeps the order of stores,
        # and of loads before a later store.
        self.in_use = [slot[:LINE].view(np.int64).data for slot in slots]
        self.floats = [slot[LINE:].view(np.float32) for slot in slots]
        self.size = len(self.floats[0])  # largest number of elements

    def take(self, size: int) -> int:
        """Mark a slot for `size` elements as in use; return the bits of its number.

        Returns 0 if no slot is free or large enough.
        """
        if size <= self.size:
            for slot, flag in enumerate(self.in_use):
                if not flag[0]:
                    flag[0] = 1
                    return SLOT | slot * SECOND
        return 0

    def values(self, kind: int, size: int) -> np.ndarray:
        """Return the elements of a slot, whose number is in the kind of a message."""
        return self.floats[bool(kind & SECOND)][:size]

    def check(self, kind: int, size: int) -> np.ndarray:
        """Return the elements of a slot that another rank has named.

        Raise Malformed if the slot is shorter, or not in use.
        """
        if not (0 <= size <= self.size and self.in_use[bool(kind & SECOND)][0] == 1):
            raise Malformed(f"a slot of {size} elements")
        return self.values(kind, size)

    def free(self, kind: int) -> None:
        """Mark a slot as free, after its values have been read."""
        self.in_use[bool(kind & SECOND)][0] = 0


class Channel(NamedTuple):
    """The slots of a worker and a server."""

    pushes: Slots
    replies: Slots


class HostSlots:
    """The slots of all workers and servers; worker r has those in the memory of rank r.

    window: shared window of all ranks.
    sizes: elements of a slot of each server.
    """

    def __init__(self, window: Window, sizes: list[int]):
        self.parts, self.sizes = window.parts, sizes

    def channel(self, worker: int, server: int) -> Channel:
        """Return the slots of a worker and a server."""
        before = sum(map(channel_nbytes, self.sizes[:server]))
        nbytes = channel_nbytes(self.sizes[server])
        halves = self.parts[worker][before : before + nbytes].reshape(2, -1)
        return Channel(Slots(halves[0]), Slots(halves[1]))

    def of_worker(self, worker: int) -> list[Channel]:
        """Return the free slots of a worker, by server; called on this worker."""
        channels = [self.channel(worker, server) for server in range(len(self.sizes))]
        for channel in channels:
            for flag in (*channel.pushes.in_use, *channel.replies.in_use):
                flag[0] = 0
        return channels

    def of_server(self, server: int, workers: int) -> list[Channel]:
        """Return the slots of a server, by worker."""
        return [self.channel(worker, server) for worker in range(workers)]


def channel_nbytes(size: int) -> int:
    """Return the bytes of a channel whose slots have `size` elements."""
    return 2 * COUNT * (LINE + -(-4 * size // LINE) * LINE)


def allocate(comm: CountedComm, split: Partition, width: int) -> HostSlots | None:
    """Allocate the slots of all ranks; collective. Returns None for messages only.

    Slots exist on real ranks of one host, if some values are longer than INLINE bytes.
    A slot has the elements of its server, or less, so that all slots of the host have
    at most MAX_NBYTES; memory of slots that are never used is not allocated by the
    system. The window is kept for later calls. A run that is recorded or replayed uses
    messages, as the events of its waits depend on them.

    Args:
      comm: Workers and servers.
      split: Partition of the rows among servers.
      width: Number of columns of the table.
    """
    platform = comm.platform
    recorded = platform.note is not no_op
    if platform.virtual or recorded or comm.size == 1 or not one_host(comm):
        return None
    all_nbytes = 2 * COUNT * comm.size * 4 * width * int(split.edges[-1])
    share = min(1.0, MAX_NBYTES / max(1, all_nbytes))
    counts = [split.count(server) for server in range(split.servers)]
    sizes = [int(share * count * width) for count in counts]
    if 4 * max(sizes) <= INLINE:
        return None
    nbytes = sum(map(channel_nbytes, sizes))
    keeper = uncounted(comm)
    window = keeper.cache.slots
    if window is not None and len(window.parts[0]) < nbytes:
        window.Free()
        window = None
    if window is None:
        window = keeper.cache.slots = keeper.platform.shared_window(nbytes)
    return HostSlots(window, sizes)
