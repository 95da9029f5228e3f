"""A worker's end of a parameter server: pull rows, push gradients, count clocks.

    worker                       server s
      │ ── PULL keys ────────────► │  waits until the clock is complete, if it must
      │ ◄─ clock, version, rows ── │
      │ ── PUSH keys, gradients ─► │  one message: sums or applies them
      │ ── CLOCK ────────────────► │

Rows are dealt to s servers, so each exchange is s of these. 2nD words a clock, for n
rows of D words, and n words of keys where the server does not know them yet.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dml.types import BadInput, CountedComm
from dml.wire.messages.head import (
    CLOCK,
    END,
    KEYS,
    NBYTES,
    PULL,
    PUSH,
    WORDS,
    Head,
    apart,
    keys_end,
    longest,
    write,
)
from dml.wire.messages.known_keys import Lists
from dml.wire.messages.tags import Tag
from dml.wire.partition import Part, Partition, parts
from dml.wire.rows import Keys, length

TURNS = 2  # message buffers a server: one is filled while the other is sent


class Asked(NamedTuple):
    """Rows under way."""

    requests: list[Any]
    servers: list[int]
    values: np.ndarray
    scattered: list[tuple[Keys, np.ndarray]]  # where rows go, and where they come in
    words: np.ndarray  # a row a server: clock, version, applied, count


class Client:
    """A worker's connection to its servers; `ranks` are theirs in comm.

    `wait(requests)` waits for all of them: a rank that also serves does so meanwhile.
    """

    def __init__(
        self,
        comm: CountedComm,
        partition: Partition,
        width: int,
        ranks: Sequence[int],
        *,
        known: int = 64,
        wait: Callable[[list[Any]], object] | None = None,
    ):
        self.comm, self.partition, self.width, self.ranks = (
            comm,
            partition,
            width,
            ranks,
        )
        self.wait = wait or comm.Waitall
        self.clock = 0  # clocks that this worker has ended
        self.versions = np.zeros(len(ranks), np.int64)  # of the rows last read
        self.answers, self.changes = [0] * len(ranks), [0] * len(ranks)
        self.lists = [Lists(known) for _ in ranks]
        self.keys_sent = self.keys_known = self.rows_pulled = self.rows_pushed = 0
        self.turn = 0
        most = [longest(partition.count(s), width) for s in range(len(ranks))]
        self.rooms = [[np.empty(n, np.uint8) for n in most] for _ in range(TURNS)]
        self.sending: list[list[list]] = [[[] for _ in ranks] for _ in range(TURNS)]
        self.split: tuple[Any, list[Part]] = (None, [])
        self.rows = int(partition.edges[-1])

    # The verbs.

    def pull(
        self, keys: Keys, need: int = -1, out: np.ndarray | None = None
    ) -> np.ndarray:
        """Return those rows, once all clocks before `need` are complete."""
        return self.have(self.ask(keys, need, out)).values

    def push(
        self,
        keys: Keys,
        values: np.ndarray,
        weight: float = 1.0,
        loss: float = 0.0,
        ends_clock: bool = False,
    ) -> None:
        """Send gradients of those rows, times their weight in the minibatch.

        Many values are read until this worker has spoken twice more: keep them so long.
        """
        if values.shape != (length(keys), self.width):
            raise BadInput(
                f"rank {self.comm.rank}: expected values of shape "
                f"{(length(keys), self.width)}, got {values.shape}; pass a row a key"
            )
        values = np.ascontiguousarray(values, np.float32)
        kind = PUSH | CLOCK if ends_clock else PUSH
        self.turn = (self.turn + 1) % TURNS
        for part in self.parts(keys):
            self.send(part, kind, self.clock, values, weight, loss)
        self.rows_pushed += length(keys)
        self.clock += ends_clock

    def clock_ends(self) -> None:
        """Say that this worker has ended its clock."""
        self.tell(CLOCK)
        self.clock += 1

    def end(self) -> None:
        """Say that this worker will say no more."""
        self.tell(END)
        for turn in self.sending:
            for requests in turn:
                self.wait(requests)
                requests.clear()

    # A pull in two halves, between which one computes.

    def ask(self, keys: Keys, need: int = -1, out: np.ndarray | None = None) -> Asked:
        """Begin to pull; `have` ends it."""
        values = out if out is not None else self.memory(length(keys))
        asked = Asked([], [], values, [], np.zeros((len(self.ranks), WORDS), np.int64))
        self.turn = (self.turn + 1) % TURNS
        for part in self.parts(keys):
            count = length(part.local)
            if not count:
                continue
            if isinstance(part.which, slice):
                rows = values[part.which]
            else:
                rows = self.memory(count)
                asked.scattered.append((part.which, rows))
            rank = self.ranks[part.server]
            word = asked.words[part.server]
            asked.requests.append(self.comm.Irecv(word, rank, Tag.VALUES))
            asked.requests.append(self.comm.Irecv(rows, rank, Tag.VALUES))
            asked.servers.append(part.server)
            self.send(part, PULL, need)
        self.rows_pulled += length(keys)
        return asked

    def have(self, asked: Asked) -> Asked:
        """Return what was asked for when it is there."""
        self.wait(asked.requests)
        for which, rows in asked.scattered:
            asked.values[which] = rows
        for server in asked.servers:
            self.answers[server] += 1
            self.comm.note(int(asked.words[server, 1]))
        self.versions[asked.servers] = asked.words[asked.servers, 1]
        return asked

    # The messages.

    def memory(self, count: int) -> np.ndarray:
        return np.empty((count, self.width), np.float32)

    def parts(self, keys: Keys) -> list[Part]:
        """Split keys by server; those of a pull mostly are those of the push."""
        if self.split[0] is not keys:
            self.check(keys)
            self.split = keys, list(parts(self.partition, keys))
        return self.split[1]

    def check(self, keys: Keys) -> None:
        if isinstance(keys, slice):
            low, high = keys.start, keys.stop - 1
        elif len(keys):
            low, high = int(keys.min()), int(keys.max())
        else:
            return
        if low < 0 or high >= self.rows:
            bad = low if low < 0 else high
            raise BadInput(
                f"rank {self.comm.rank}: expected keys of 0 to {self.rows - 1}, got "
                f"{bad}; pass rows of the table"
            )

    def send(
        self,
        part: Part,
        kind: int,
        clock: int,
        values: np.ndarray | None = None,
        weight: float = 0.0,
        loss: float = 0.0,
    ) -> None:
        """Send one server its part."""
        server, local = part.server, part.local
        message = self.room(server)
        if isinstance(local, slice):
            start, count = local.start, local.stop - local.start
        elif not len(local):
            start = count = 0
        else:
            count = len(local)
            number, known = self.lists[server].number(local)
            start = -1 - number
            if known:
                self.keys_known += count
            else:
                kind |= KEYS
                self.keys_sent += count
                message[NBYTES : NBYTES + 4 * count].view(np.int32)[:] = local
        stop = keys_end(count, kind)
        if values is None:
            body = None
        elif isinstance(part.which, slice):
            body = values[part.which]
        else:
            body = np.take(values, part.which, axis=0, mode="clip")
        if body is not None and not apart(count, self.width):
            inside = message[stop : stop + body.nbytes].view(np.float32)
            inside[:] = body.reshape(-1)
            stop, body = stop + body.nbytes, None
        self.dispatch(server, message[:stop], kind, (count, start), clock, weight, loss)
        if body is not None:
            body = body.reshape(-1)
            request = self.comm.Isend(body, self.ranks[server], Tag.GRADIENTS)
            self.sending[self.turn][server].append(request)

    def dispatch(
        self,
        server: int,
        message: np.ndarray,
        kind: int,
        place: tuple[int, int],
        clock: int,
        *of: float,
    ) -> None:
        version = int(self.versions[server])
        heard = self.answers[server], self.changes[server]
        write(Head(kind, *place, clock, version, *heard, *of), message)
        request = self.comm.Isend(message, self.ranks[server], Tag.SERVER)
        self.sending[self.turn][server].append(request)

    def tell(self, kind: int) -> None:
        """Send all servers a message without rows."""
        self.turn = (self.turn + 1) % TURNS
        for server in range(len(self.ranks)):
            message = self.room(server)[:NBYTES]
            self.dispatch(server, message, kind, (0, 0), self.clock, 0.0, 0.0)

    def room(self, server: int) -> np.ndarray:
        """Return memory for a message, once what was there before is sent."""
        requests = self.sending[self.turn][server]
        if requests:
            self.wait(requests)
            requests.clear()
        return self.rooms[self.turn][server]
