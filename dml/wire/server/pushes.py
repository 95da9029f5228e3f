"""The keys and values of messages to a server, which are read and checked here.

    message    │ head │ keys or the number of a list │ mask │ values │
    slot       │ head │ keys or the number of a list │ mask │          values in memory
    announced  │ head │ keys or the number of a list │ mask │          a second message

The server serves other workers until announced values arrive, since a worker may
announce values and never send them. Values are sent before the worker's next message.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dml.types import WITHDRAWN, Comm, Status
from dml.wire.comm.tags import Tag
from dml.wire.reducers.rows import Keys, indices, length
from dml.wire.server.header import (
    BITS,
    KEYS,
    NBYTES,
    SLOT,
    ServerHead,
    bits_end,
    is_separate,
    keys_end,
)
from dml.wire.server.slots import Channel, Slots
from dml.wire.server.validation import Malformed, check_keys

NO_ROWS = np.empty(0, np.int32)


class Push(NamedTuple):
    """A gradient from one worker."""

    worker: int
    head: ServerHead
    keys: Keys  # rows of this server
    grads: np.ndarray


class Pushes:
    """Reads the keys and values of messages.

    comm: the ranks.
    shape: shape of the server's rows.
    workers: number of workers.
    channels: slots of shared memory, by worker; empty: messages only.
    stores: whether gradients are stored, so that their values are copied.
    """

    def __init__(
        self,
        comm: Comm,
        shape: tuple[int, int],
        workers: int,
        channels: Sequence[Channel],
        stores: bool,
    ):
        self.comm, self.stores = comm, stores
        self.rows, self.width = shape
        self.channels = channels
        # for each worker: stored lists of keys by number
        self.lists: list[dict[int, np.ndarray]] = [{} for _ in range(workers)]
        self.announced: dict[int, Push] = {}  # without their values, by worker
        self.receives: dict[int, Any] = {}  # posted receives of values, by rank
        self.status = Status()

    def keys(self, worker: int, head: ServerHead, message: np.ndarray) -> Keys:
        """Return the rows of a message; store a new list of keys."""
        rows, start = head.rows, head.start
        if not rows:  # from a worker that waits for a clock
            return NO_ROWS
        if start >= 0:
            return slice(start, start + rows)
        stored, list_number = self.lists[worker], -1 - start
        if head.kind & KEYS:
            keys = message[NBYTES : NBYTES + 4 * rows].view(np.int32)
            check_keys(keys, self.rows)
            stored[list_number] = keys = keys.copy()
            return keys
        keys = stored.get(list_number, NO_ROWS)
        if len(keys) != rows:
            raise Malformed(f"{rows} keys of list {list_number}: {len(keys)}")
        return keys

    def read(
        self, worker: int, head: ServerHead, message: np.ndarray, nbytes: int
    ) -> Push | None:
        """Return the gradient of a message, or None if its values have not arrived.

        Values that are not stored are in memory that is used again, after `free`.

        Args:
          worker: Number of the worker.
          head: Head of the message.
          message: The message.
          nbytes: Its length.
        """
        kind, rows = head.kind, head.rows
        keys = self.keys(worker, head, message)
        start = bits_end(rows, kind) if kind & (KEYS | BITS) else NBYTES
        if kind & BITS:
            bits = message[keys_end(rows, kind) : start]
            has = np.unpackbits(bits, count=rows).view(bool)
            keys = indices(keys)[has]
            rows = len(keys)
        size = rows * self.width
        is_inline = not (kind & SLOT or is_separate(rows, self.width))
        if nbytes != start + 4 * size * is_inline:
            raise Malformed(f"{nbytes} bytes with values of {rows} rows")
        if is_inline:
            values = np.frombuffer(message, np.float32, size, start)
        elif kind & SLOT:
            values = self.slots(worker).check(kind, size)
        else:
            self.announce(worker, head, keys)
            return None
        values = values.copy() if self.stores else values
        return Push(worker, head, keys, values.reshape(rows, self.width))

    def free(self, push: Push) -> None:
        """Free the slot of a gradient."""
        self.channels[push.worker].pushes.free(push.head.kind)

    def slots(self, worker: int, replies: bool = False) -> Slots:
        """Return the slots of a worker's pushes or replies."""
        if not self.channels:
            raise Malformed("a slot without shared memory")
        channel = self.channels[worker]
        return channel.replies if replies else channel.pushes

    # Values that are a second message.

    def announce(self, worker: int, head: ServerHead, keys: Keys) -> None:
        """Post the receive of the values of a gradient."""
        values_RxD = np.empty((length(keys), self.width), np.float32)
        self.announced[worker] = Push(worker, head, keys, values_RxD)
        self.post(worker, values_RxD.reshape(-1))

    def post(self, rank: int, buffer: np.ndarray) -> None:
        """Post the receive of the next values of a rank."""
        self.receives[rank] = self.comm.Irecv(buffer, rank, Tag.GRADIENTS)

    def arrived(self, rank: int, count: int) -> Push | None:
        """Return the gradient whose values have arrived; None for a refused rank.

        Args:
          rank: Rank that sent them.
          count: Number of bytes.
        """
        del self.receives[rank]
        push = self.announced.pop(rank, None)
        if push is None:
            self.drop(rank)
        elif count != push.grads.nbytes:
            raise Malformed(f"values that have not {push.grads.nbytes} bytes")
        return push

    def take(self, worker: int) -> Push:
        """Return the announced gradient of a worker whose next message has arrived.

        Its values were sent before: a receive that has no message now will have none.
        """
        count = self.withdraw(worker)
        if count == WITHDRAWN:
            del self.announced[worker], self.receives[worker]
            raise Malformed("a message before the announced values")
        push = self.arrived(worker, count)
        assert push
        return push

    def withdraw(self, rank: int) -> int:
        """Return the count of a posted receive, after its end or without a message."""
        request = self.receives[rank]
        if not request.Test(self.status):
            request.Cancel()
            request.Wait(self.status)
        return self.status.count

    def drop(self, rank: int) -> None:
        """Receive no values of a refused rank, so that its sends complete."""
        if rank in self.receives:
            self.withdraw(rank)
        self.announced.pop(rank, None)
        self.post(rank, NO_ROWS)  # cuts the message to no bytes

    def forget(self, rank: int) -> None:
        """Drop the announced gradient of a rank that has died."""
        self.announced.pop(rank, None)
        self.receives.pop(rank, None)

    def settle(self) -> None:
        """Withdraw the receives of refused ranks."""
        for rank in self.receives:
            while self.withdraw(rank) != WITHDRAWN:
                self.post(rank, NO_ROWS)
        self.receives.clear()
