"""A worker's messages to its servers, built in buffers that are used again."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dml.types import Comm
from dml.wire.comm.tags import Tag
from dml.wire.plans.partition import Part, Partition
from dml.wire.reducers.rows import Keys, length
from dml.wire.server.header import (
    KEYS,
    NBYTES,
    Head,
    bits_end,
    is_separate,
    keys_end,
    longest,
    write,
)

TURNS = 2  # message buffers per server: one is filled while the other is sent
Acknowledged = tuple[
    int, int, int
]  # version read, numbers of replies and of changes received


class Lists:
    """The last lists of keys sent to a server, by their number (Li 2014).

    The server has the same lists, which need not be sent again. Both ends number them
    alike, as messages between two ranks never overtake each other.
    """

    def __init__(self, most: int):
        self.most, self.count = most, 0
        self.numbers: dict[bytes, int] = {}

    def number(self, keys: np.ndarray) -> tuple[int, bool]:
        """Return a list's number, and whether the server has it."""
        if not self.most:
            return 0, False
        text = keys.tobytes()
        number = self.numbers.get(text)
        if number is not None:
            return number, True
        number = self.count % self.most
        if self.count >= self.most:
            del self.numbers[next(iter(self.numbers))]
        self.numbers[text] = number
        self.count += 1
        return number, False


class Gradient(NamedTuple):
    """A push: a row for each key, or for each key of the mask `has`."""

    values: np.ndarray
    weight: float  # in the minibatch
    loss: float
    has: np.ndarray | None

    def select(self, which: Keys) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the values of some of the keys, and the mask of those with values."""
        if self.has is None:
            if isinstance(which, slice):
                return self.values[which], None
            return np.take(self.values, which, axis=0, mode="clip"), None
        has = self.has[which]
        place = np.cumsum(self.has) - 1
        return self.values[place[which][has]], has


class Outbox:
    """The buffers of messages, and the sends that may not have completed."""

    def __init__(
        self,
        comm: Comm,
        partition: Partition,
        width: int,
        ranks: Sequence[int],
        known: int,
        wait: Callable[[list[Any]], object],
    ):
        self.comm, self.width, self.ranks, self.wait = comm, width, ranks, wait
        self.lists = [Lists(known) for _ in ranks]
        self.keys_sent = self.keys_known = self.turn = 0
        empty = np.empty(0, np.uint8)  # grows with the messages
        self.buffers = [[empty for _ in ranks] for _ in range(TURNS)]
        self.sending: list[list[list]] = [[[] for _ in ranks] for _ in range(TURNS)]

    def next_turn(self) -> None:
        """Begin a message to each server."""
        self.turn = (self.turn + 1) % TURNS

    def send(
        self,
        part: Part,
        kind: int,
        clock: int,
        acknowledged: Acknowledged,
        gradient: Gradient | None = None,
    ) -> None:
        """Send a server its part of a list of keys, or of a gradient."""
        server, local = part.server, part.local
        rows, start = length(local), 0
        message = self.buffer(server, longest(rows, self.width))
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
        stop, body, fields = keys_end(rows, kind), None, (0.0, 0.0)
        if gradient:
            body, has = gradient.select(part.selection)
            fields = gradient.weight, gradient.loss
            if has is not None:
                bits = np.packbits(has)
                message[stop : stop + len(bits)] = bits
                stop = bits_end(rows, kind)
            if not is_separate(len(body), self.width):
                inside = message[stop : stop + body.nbytes].view(np.float32)
                inside[:] = body.reshape(-1)
                stop, body = stop + body.nbytes, None
        write(Head(kind, rows, start, clock, *acknowledged, *fields), message)
        self.dispatch(message[:stop], server, Tag.SERVER)
        if body is not None:
            self.dispatch(body.reshape(-1), server, Tag.GRADIENTS)

    def notify(
        self, server: int, kind: int, clock: int, acknowledged: Acknowledged
    ) -> None:
        """Send a server a message without rows."""
        message = self.buffer(server, NBYTES)[:NBYTES]
        write(Head(kind, 0, 0, clock, *acknowledged, 0.0, 0.0), message)
        self.dispatch(message, server, Tag.SERVER)

    def dispatch(self, message: np.ndarray, server: int, tag: Tag) -> None:
        request = self.comm.Isend(message, self.ranks[server], tag)
        self.sending[self.turn][server].append(request)

    def buffer(self, server: int, nbytes: int) -> np.ndarray:
        """Return the buffer of a message, after the earlier message in it is sent."""
        self.sent(self.sending[self.turn][server])
        buffers = self.buffers[self.turn]
        if len(buffers[server]) < nbytes:
            buffers[server] = np.empty(nbytes, np.uint8)
        return buffers[server]

    def settle(self) -> None:
        """Return when all messages are sent."""
        for turn in self.sending:
            for requests in turn:
                self.sent(requests)

    def sent(self, requests: list[Any]) -> None:
        if requests:
            self.wait(requests)
            requests.clear()
