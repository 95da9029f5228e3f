"""The worker's side of a parameter server: pull rows, push gradients, count clocks.

    worker                       each server
      │ ── PULL keys ────────────► │  replies when the required clock is complete
      │ ◄─ clock, version, rows ── │
      │ ── PUSH keys, gradients ─► │  stores or applies the gradients
      │ ── CLOCK ────────────────► │  counts the clocks that the worker has ended

Each server has a part of the rows, and the worker exchanges these messages with every
server. Cost per clock and worker: 2nD elements for n rows of D columns, and n elements
of keys unless the servers store this list of keys.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dml.types import BadInput, CountedComm
from dml.wire.comm.tags import Tag
from dml.wire.plans.partition import KeyPart, Partition, split_keys
from dml.wire.reducers.rows import Keys, length
from dml.wire.server.header import (
    BITS,
    CLOCK,
    END,
    PULL,
    PUSH,
    REFUSED,
    REPLY_FLOATS,
    REPLY_INTS,
    is_separate,
)
from dml.wire.server.messages import Acknowledged, Gradient, Outbox
from dml.wire.server.slots import Channel


class Reply(NamedTuple):
    """The part of a pull that one server sends."""

    server: int
    which: Keys  # positions of the keys in the pull
    head: np.ndarray  # clock, version, applied pushes, number of rows
    rows: np.ndarray
    slot: int  # bits of the slot of the rows; 0: not in a slot


class PendingPull(NamedTuple):
    """A pull in progress."""

    requests: list[Any]
    later: list[Any]  # requests of rows that follow their head
    replies: list[Reply]
    rows: int  # number of keys
    out: np.ndarray | None  # receives the rows; None: allocated when they arrive


class PulledRows(NamedTuple):
    """The rows of a pull, and the servers that sent them."""

    values: np.ndarray
    heads: np.ndarray  # row per server: clock, version, applied pushes, number of rows
    servers: list[int]


class Client:
    """A worker's connection to its servers.

    comm: the ranks.
    partition: the rows of each server.
    width: columns of the table.
    ranks: the rank of each server in comm.
    known: number of key lists that a server stores.
    wait: requests -> None; waits until all requests have completed. None: `Waitall`. On
        a rank that is also a server, it handles messages to this server meanwhile.
    channels: slots of shared memory, by server; empty: messages only.
    run: number of the run, equal on its workers and servers.
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
        channels: Sequence[Channel] = (),
        run: int = 0,
    ):
        self.comm, self.partition = comm, partition
        self.width, self.ranks = width, ranks
        self.wait = wait or comm.Waitall
        self.channels = channels
        self.outbox = Outbox(
            comm, partition, width, ranks, known, self.wait, channels=channels, run=run
        )
        self.clock = 0  # number of clocks that this worker has ended
        # for each server: version of the rows last read, replies and changes received
        self.versions = np.zeros(len(ranks), np.int64)
        self.replies, self.changes = [0] * len(ranks), [0] * len(ranks)
        self.rows_pulled = self.rows_pushed = 0
        self.split: tuple[Any, list[KeyPart]] = (None, [])  # last keys and their parts
        self.rows = int(partition.edges[-1])

    def pull(
        self, keys: Keys, need: int = -1, out: np.ndarray | None = None
    ) -> np.ndarray:
        """Return rows after the servers have completed all clocks before `need`.

        out: receives the rows; None: a new array.
        """
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
        """Send gradients of rows.

        values: a gradient for each key, or for each key in the mask `has`; multiplied
            by `weight`. Do not change the array before the second message after it.
        weight: share of the minibatch from which the gradients were computed.
        """
        rows = length(keys) if has is None else int(has.sum())
        if values.shape != (rows, self.width):
            raise BadInput(
                f"rank {self.comm.rank}: expected values of shape "
                f"{(rows, self.width)}, got {values.shape}; pass a row per key"
            )
        values = np.ascontiguousarray(values, np.float32)
        kind = PUSH | (CLOCK if ends_clock else 0) | (0 if has is None else BITS)
        self.outbox.next_turn()
        gradient = Gradient(values, weight, loss, has)
        for part in self.parts(keys):
            acknowledged = self.acknowledged(part.server)
            self.outbox.send(part, kind, self.clock, acknowledged, gradient)
        self.rows_pushed += rows
        self.clock += ends_clock

    def end_clock(self) -> None:
        """End this worker's clock; notify the servers."""
        self.notify(CLOCK)
        self.clock += 1

    def end(self) -> None:
        """Notify the servers that this worker sends no more; wait for all sends."""
        self.notify(END)
        self.outbox.settle()

    def notify(self, kind: int) -> None:
        """Send every server a message without keys."""
        self.outbox.next_turn()
        for server in range(len(self.ranks)):
            self.outbox.notify(server, kind, self.clock, self.acknowledged(server))

    def acknowledged(self, server: int) -> Acknowledged:
        """Return the version and the numbers of messages received from a server."""
        version = int(self.versions[server])
        return version, self.replies[server], self.changes[server]

    # A pull in two parts, with computation between them.

    def begin_pull(
        self, keys: Keys, need: int = -1, out: np.ndarray | None = None
    ) -> PendingPull:
        """Request rows; `finish_pull` waits for the replies."""
        values = out
        if isinstance(keys, slice) and values is None:
            values = self.memory(length(keys))
        pull = PendingPull([], [], [], length(keys), values)
        self.outbox.next_turn()
        for part in self.parts(keys):
            count = length(part.local)
            if not count and pull.rows:
                continue
            rank = self.ranks[part.server]
            receive = self.comm.Irecv
            is_range, slot = isinstance(part.local, slice), 0
            if is_range or is_separate(count, self.width):  # rows follow the head
                head = np.zeros(REPLY_INTS, np.int64)
                pull.requests.append(receive(head, rank, Tag.VALUES))
                if self.channels and not is_range:
                    slot = self.channels[part.server].replies.take(count * self.width)
                if slot:
                    slots = self.channels[part.server].replies
                    rows = slots.values(slot, count * self.width).reshape(count, -1)
                else:
                    rows = self.reply_memory(part, values)
                    pull.later.append(receive(rows, rank, Tag.VALUES))
            else:
                buffer = np.empty(REPLY_FLOATS + count * self.width, np.float32)
                head = buffer[:REPLY_FLOATS].view(np.int64)
                rows = buffer[REPLY_FLOATS:].reshape(count, self.width)
                pull.requests.append(receive(buffer, rank, Tag.VALUES))
            pull.replies.append(Reply(part.server, part.selection, head, rows, slot))
            acknowledged = self.acknowledged(part.server)
            self.outbox.send(part, PULL | slot, need, acknowledged)
        self.rows_pulled += length(keys)
        return pull

    def finish_pull(self, pull: PendingPull) -> PulledRows:
        """Wait for the rows of a pull and return them in the order of the keys."""
        self.wait(pull.requests)
        for reply in pull.replies:
            if reply.head[3] == REFUSED:  # no rows follow
                self.refuse(reply.server)
        if pull.later:
            self.wait(pull.later)
        values = pull.out
        heads = np.zeros((len(self.ranks), REPLY_INTS), np.int64)
        for server, which, head, rows, slot in pull.replies:
            heads[server] = head
            self.replies[server] += 1
            version = int(head[1])
            self.versions[server] = version
            self.comm.platform.note(version)
            is_all = len(rows) == pull.rows and isinstance(which, slice)
            if values is None and is_all and not slot:
                values = rows  # all rows, in their order
                continue
            if values is None:
                values = self.memory(pull.rows)
            if not np.may_share_memory(values, rows):
                values[which] = rows
            if slot:
                self.channels[server].replies.free(slot)
        if values is None:
            values = self.memory(pull.rows)
        return PulledRows(values, heads, [reply.server for reply in pull.replies])

    def refuse(self, server: int) -> None:
        """Raise BadInput after a server has refused a message of this rank."""
        raise BadInput(
            f"rank {self.comm.rank}: expected rows from server {server}, got a refusal "
            "after a malformed message; use one version of dml on all ranks, and send "
            "no other messages to servers"
        )

    def reply_memory(self, part: KeyPart, out: np.ndarray | None) -> np.ndarray:
        """Return memory for the rows of a server: a part of `out` if possible."""
        if out is not None and isinstance(part.selection, slice):
            return out[part.selection]
        return self.memory(length(part.local))

    def memory(self, count: int) -> np.ndarray:
        """Allocate a number of rows."""
        return np.empty((count, self.width), np.float32)

    def parts(self, keys: Keys) -> list[KeyPart]:
        """Split keys by server; cached, as a push mostly has the keys of its pull."""
        if self.split[0] is not keys:
            self.check(keys)
            self.split = keys, list(split_keys(self.partition, keys))
        return self.split[1]

    def check(self, keys: Keys) -> None:
        """Raise if a key is not a row of the table."""
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
