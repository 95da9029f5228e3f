"""A worker's messages to its servers, built in buffers that are reused."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dml.types import Comm
from dml.wire.comm.metered import count_copy
from dml.wire.comm.tags import Tag
from dml.wire.plans.partition import KeyPart, Partition
from dml.wire.reducers.rows import Keys, length
from dml.wire.server.header import (
    FORMAT,
    KEYS,
    NBYTES,
    bits_end,
    is_separate,
    keys_end,
    max_nbytes,
)
from dml.wire.server.slots import Channel

TURNS = 2  # message buffers per server: one is filled while the other is sent
# version of the rows last read, numbers of replies and of changes received
Acknowledged = tuple[int, int, int]


class Lists:
    """The last `most` lists of keys sent to a server, and their numbers (Li 2014).

    The server stores the same lists under the same numbers, as messages between two
    ranks never overtake each other. A stored list is not sent again, only its number.
    """

    def __init__(self, most: int):
        self.most, self.count = most, 0
        self.numbers: dict[bytes, int] = {}

    def number(self, keys: np.ndarray) -> tuple[int, bool]:
        """Return the number of a list, and whether the server stores the list."""
        if not self.most:
            return 0, False
        content = keys.tobytes()
        number = self.numbers.get(content)
        if number is not None:
            return number, True
        number = self.count % self.most
        if self.count >= self.most:
            del self.numbers[next(iter(self.numbers))]
        self.numbers[content] = number
        self.count += 1
        return number, False


class Gradient(NamedTuple):
    """The gradient of a push."""

    values: np.ndarray  # a row for each key, or for each key in the mask `has`
    weight: float  # share of the minibatch's examples
    loss: float
    has: np.ndarray | None  # mask of the keys with values; None: all

    def select(self, which: Keys) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the values and the mask of the keys at the positions `which`."""
        if self.has is None:
            if isinstance(which, slice):
                return self.values[which], None
            return np.take(self.values, which, axis=0, mode="clip"), None
        has = self.has[which]
        value_rows = np.cumsum(self.has) - 1  # row of `values` for each key with values
        return self.values[value_rows[which][has]], has


class Outbox:
    """The buffers of a worker's messages, and the sends that are not yet completed.

    comm: the ranks.
    partition: the rows of each server.
    width: columns of the table.
    ranks: the rank of each server.
    known: number of key lists that a server stores.
    wait: requests -> None; waits until all requests have completed.
    channels: slots of shared memory, by server; empty: messages only.
    run: number of the run.
    """

    def __init__(
        self,
        comm: Comm,
        partition: Partition,
        width: int,
        ranks: Sequence[int],
        known: int,
        wait: Callable[[list[Any]], object],
        *,
        channels: Sequence[Channel] = (),
        run: int = 0,
    ):
        self.run = run
        self.comm, self.width, self.ranks, self.wait = comm, width, ranks, wait
        self.channels = channels
        self.lists = [Lists(known) for _ in ranks]
        self.keys_sent = self.keys_known = self.turn = 0
        empty = np.empty(0, np.uint8)  # grows with the messages
        self.buffers = [[empty for _ in ranks] for _ in range(TURNS)]
        self.sending: list[list[list]] = [[[] for _ in ranks] for _ in range(TURNS)]

    def next_turn(self) -> None:
        """Switch to the other buffers; called before the messages to the servers."""
        self.turn = (self.turn + 1) % TURNS

    def send(
        self,
        part: KeyPart,
        kind: int,
        clock: int,
        acknowledged: Acknowledged,
        gradient: Gradient | None = None,
    ) -> None:
        """Send a server its part of the keys, and of the gradient in a push."""
        server, local = part.server, part.local
        rows = length(local)
        start = 0
        message = self.buffer(server, max_nbytes(rows, self.width))
        if isinstance(local, slice):
            start = local.start
        elif rows:
            number, known = self.lists[server].number(local)
            start = -1 - number
            if known:
                self.keys_known += rows
            else:
                kind |= KEYS
                self.keys_sent += rows
                message[NBYTES : NBYTES + 4 * rows].view(np.int32)[:] = local
        stop = keys_end(rows, kind)
        separate = None  # values in a second message
        weight, loss = 0.0, 0.0
        if gradient:
            values, has = gradient.select(part.selection)
            weight, loss = gradient.weight, gradient.loss
            if has is not None:
                bits = np.packbits(has)
                message[stop : stop + len(bits)] = bits
                stop = bits_end(rows, kind)
            if not is_separate(len(values), self.width):
                start_of_values, stop = stop, stop + values.nbytes
                message[start_of_values:stop] = values.view(np.uint8).reshape(-1)
            elif slot := self.fill_slot(server, values):
                kind |= slot
            else:
                separate = values
        numbers = rows, start, clock, *acknowledged, weight, loss, self.run
        FORMAT.pack_into(message.data, 0, kind, *numbers)
        self.dispatch(message[:stop], server, Tag.SERVER)
        if separate is not None:
            self.dispatch(separate.reshape(-1), server, Tag.GRADIENTS)

    def fill_slot(self, server: int, values: np.ndarray) -> int:
        """Copy values to a slot; return its bits, or 0 without a free slot."""
        slots = self.channels[server].pushes if self.channels else None
        slot = slots.take(values.size) if slots else 0
        if slots and slot:
            slots.values(slot, values.size)[:] = values.reshape(-1)
            count_copy(self.comm, values, self.ranks[server])
        return slot

    def notify(
        self, server: int, kind: int, clock: int, acknowledged: Acknowledged
    ) -> None:
        """Send a server a head without keys, as at the end of a clock."""
        message = self.buffer(server, NBYTES)[:NBYTES]
        numbers = 0, 0, clock, *acknowledged, 0.0, 0.0, self.run
        FORMAT.pack_into(message.data, 0, kind, *numbers)
        self.dispatch(message, server, Tag.SERVER)

    def dispatch(self, message: np.ndarray, server: int, tag: Tag) -> None:
        """Start a send to a server."""
        request = self.comm.Isend(message, self.ranks[server], tag)
        self.sending[self.turn][server].append(request)

    def buffer(self, server: int, nbytes: int) -> np.ndarray:
        """Return a server's buffer, after the send of its earlier message."""
        self.sent(self.sending[self.turn][server])
        buffers = self.buffers[self.turn]
        if len(buffers[server]) < nbytes:
            buffers[server] = np.empty(nbytes, np.uint8)
        return buffers[server]

    def settle(self) -> None:
        """Wait until all messages are sent."""
        for turn in self.sending:
            for requests in turn:
                self.sent(requests)

    def sent(self, requests: list[Any]) -> None:
        """Wait until these sends have completed, and drop their requests."""
        if requests:
            self.wait(requests)
            requests.clear()
