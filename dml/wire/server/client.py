"""The worker's side of a parameter server: pull rows, push gradients, count clocks.

    worker                       server s
      │ ── PULL keys ────────────► │  answers when the clock is complete
      │ ◄─ clock, version, rows ── │
      │ ── PUSH keys, gradients ─► │  stores or applies them
      │ ── CLOCK ────────────────► │

Each exchange is one with each of s servers, which have a part of the rows. 2nD words
per clock, for n rows of D words, and n words of keys that the server does not know yet.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dml.types import BadInput, CountedComm
from dml.wire.comm.tags import Tag
from dml.wire.plans.partition import Part, Partition, split_keys
from dml.wire.reducers.rows import Keys, length
from dml.wire.server.header import BITS, CLOCK, END, FLOATS, PULL, PUSH, WORDS
from dml.wire.server.messages import Acknowledged, Gradient, Outbox


class Reply(NamedTuple):
    """The rows of a pull that one server sends."""

    server: int
    which: Keys  # of the keys
    word: np.ndarray  # clock, version, applied, count
    rows: np.ndarray


class PendingPull(NamedTuple):
    """A pull in progress."""

    requests: list[Any]
    parts: list[Reply]
    rows: int
    out: np.ndarray | None


class PulledRows(NamedTuple):
    """The rows of a pull, and the servers that sent them."""

    values: np.ndarray
    words: np.ndarray  # a row per server: clock, version, applied, count
    servers: list[int]


class Client:
    """A worker's connection to its servers.

    comm: the ranks.
    partition: the rows of each server.
    width: columns of the table.
    ranks: of the servers in comm.
    known: key lists that a server remembers.
    wait: requests -> None; waits for all of them. By default `Waitall`; a rank that is
        also a server handles its messages meanwhile.
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
        self.comm, self.partition = comm, partition
        self.width, self.ranks = width, ranks
        self.wait = wait or comm.Waitall
        self.outbox = Outbox(comm, partition, width, ranks, known, self.wait)
        self.clock = 0  # clocks that this worker has ended
        self.versions = np.zeros(len(ranks), np.int64)  # of the rows last read
        self.replies, self.changes = [0] * len(ranks), [0] * len(ranks)
        self.rows_pulled = self.rows_pushed = 0
        self.split: tuple[Any, list[Part]] = (None, [])
        self.rows = int(partition.edges[-1])

    def pull(
        self, keys: Keys, need: int = -1, out: np.ndarray | None = None
    ) -> np.ndarray:
        """Return rows, as soon as all clocks before `need` are complete."""
        return self.finish_pull(self.begin_pull(keys, need, out)).values

    def push(
        self,
        keys: Keys,
        values: np.ndarray,
        weight: float = 1.0,
        loss: float = 0.0,
        *,
        ends_clock: bool = False,
        has: np.ndarray | None = None,
    ) -> None:
        """Send gradients of rows, times their weight in the minibatch.

        values: a row for each key, or for each key of the mask `has`. They may be read
            until this worker has sent two more messages.
        """
        wanted = length(keys) if has is None else int(has.sum())
        if values.shape != (wanted, self.width):
            raise BadInput(
                f"rank {self.comm.rank}: expected values of shape "
                f"{(wanted, self.width)}, got {values.shape}; pass a row per key"
            )
        values = np.ascontiguousarray(values, np.float32)
        kind = PUSH | (CLOCK if ends_clock else 0) | (0 if has is None else BITS)
        self.outbox.next_turn()
        gradient = Gradient(values, weight, loss, has)
        for part in self.parts(keys):
            acknowledged = self.acknowledged(part.server)
            self.outbox.send(part, kind, self.clock, acknowledged, gradient)
        self.rows_pushed += wanted
        self.clock += ends_clock

    def end_clock(self) -> None:
        """Send the servers the end of this worker's clock."""
        self.notify(CLOCK)
        self.clock += 1

    def end(self) -> None:
        """Send the servers the end of this worker's messages."""
        self.notify(END)
        self.outbox.settle()

    def notify(self, kind: int) -> None:
        self.outbox.next_turn()
        for server in range(len(self.ranks)):
            self.outbox.notify(server, kind, self.clock, self.acknowledged(server))

    def acknowledged(self, server: int) -> Acknowledged:
        version = int(self.versions[server])
        return version, self.replies[server], self.changes[server]

    # A pull in two halves, with computation between them.

    def begin_pull(
        self, keys: Keys, need: int = -1, out: np.ndarray | None = None
    ) -> PendingPull:
        """Begin a pull; `finish_pull` completes it."""
        values = out
        if isinstance(keys, slice) and values is None:
            values = self.memory(length(keys))
        pull = PendingPull([], [], length(keys), values)
        self.outbox.next_turn()
        for part in self.parts(keys):
            count = length(part.local)
            if not count and pull.rows:
                continue
            rank, get = self.ranks[part.server], self.comm.Irecv
            if isinstance(part.local, slice):  # received in place
                word = np.zeros(WORDS, np.int64)
                assert values is not None
                straight = isinstance(part.selection, slice)
                rows = values[part.selection] if straight else self.memory(count)
                pull.requests.append(get(word, rank, Tag.VALUES))
                pull.requests.append(get(rows, rank, Tag.VALUES))
            else:
                buffer = np.empty(FLOATS + count * self.width, np.float32)
                word = buffer[:FLOATS].view(np.int64)
                rows = buffer[FLOATS:].reshape(count, self.width)
                pull.requests.append(get(buffer, rank, Tag.VALUES))
            pull.parts.append(Reply(part.server, part.selection, word, rows))
            self.outbox.send(part, PULL, need, self.acknowledged(part.server))
        self.rows_pulled += length(keys)
        return pull

    def finish_pull(self, pull: PendingPull) -> PulledRows:
        """Return the rows of a pull when they have arrived."""
        self.wait(pull.requests)
        values = pull.out
        words = np.zeros((len(self.ranks), WORDS), np.int64)
        for server, which, word, rows in pull.parts:
            words[server] = word
            self.replies[server] += 1
            self.versions[server] = word[1]
            self.comm.platform.note(int(word[1]))
            if values is None and len(rows) == pull.rows and isinstance(which, slice):
                values = rows  # all rows, in their order
                continue
            if values is None:
                values = self.memory(pull.rows)
            if not np.may_share_memory(values, rows):
                values[which] = rows
        if values is None:
            values = self.memory(pull.rows)
        return PulledRows(values, words, [part.server for part in pull.parts])

    def memory(self, count: int) -> np.ndarray:
        return np.empty((count, self.width), np.float32)

    def parts(self, keys: Keys) -> list[Part]:
        """Split keys by server; a push mostly has the keys of the pull before it."""
        if self.split[0] is not keys:
            self.check(keys)
            self.split = keys, list(split_keys(self.partition, keys))
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
