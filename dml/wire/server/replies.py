"""Rows that a server sends to workers: replies to pulls, and changed rows.

Consecutive rows are sent without a copy. Before an update while such a message may be
in transit, the server replaces its rows by a copy, so no message has rows of two
versions. Each message from a worker contains the number of replies and of messages of
changed rows that the worker has received.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dml.types import Comm, Shard
from dml.wire.comm.metered import count_copy, uncounted
from dml.wire.comm.tags import Tag
from dml.wire.reducers.rows import Keys
from dml.wire.server.header import LAST, REPLY_FLOATS, SLOT, ServerHead, is_separate
from dml.wire.server.slots import Channel
from dml.wire.server.validation import Malformed

REPLIES, CHANGES = 0, 1  # kinds of messages of rows


class ServerState(NamedTuple):
    """The state of the server, sent before rows."""

    clock: int
    version: int
    applied: int  # number of pushes of the receiving worker, applied or late


class Sent(NamedTuple):
    """One message of rows in transit."""

    requests: list[Any]
    buffer: np.ndarray | None  # reused after the send; None: sent without a copy


class Replies:
    """Sends rows to workers; keeps the messages that may be in transit.

    comm: the ranks.
    shard: the rows of this server and their update.
    workers: number of workers, which are ranks 0 to workers - 1.
    push_based: whether `send_changes` sends changed rows after every clock.
    channels: slots of shared memory, by worker; empty: messages only.
    """

    def __init__(
        self,
        comm: Comm,
        shard: Shard,
        workers: int,
        push_based: bool,
        channels: Sequence[Channel] = (),
    ):
        self.comm, self.shard, self.workers = comm, shard, workers
        self.channels = channels
        self.rows, self.width = shard.values.shape
        # for each worker: replies, and messages of changed rows
        self.sent: list[tuple[list[Sent], list[Sent]]]
        self.sent = [([], []) for _ in range(workers)]
        self.received_counts = [[0, 0] for _ in range(workers)]
        self.uncopied: set[int] = set()  # ids of messages sent without a copy
        self.free_buffers: list[np.ndarray] = []
        # Messages that a worker claims to have received, or will not receive. The
        # server does not wait for these sends, as the claim may be wrong.
        self.unfinished: list[Sent] = []
        self.push_based = push_based
        if push_based:
            self.reads = np.zeros((workers, self.rows), bool)  # rows read, by worker
            self.dirty = np.zeros(self.rows, bool)  # rows changed since the last clock

    @property
    def replies(self) -> int:
        """Number of replies sent so far."""
        sent = sum(len(messages[REPLIES]) for messages in self.sent)
        return sent + sum(counts[REPLIES] for counts in self.received_counts)

    def reply(self, worker: int, keys: Keys, state: ServerState, kind: int) -> None:
        """Start to send a worker the rows of its pull, a message of this kind."""
        if kind & SLOT and not isinstance(keys, slice):
            message = self.send_slot(worker, keys, state, kind)
        else:
            message = self.send_rows(worker, keys, state, Tag.VALUES)
        self.sent[worker][REPLIES].append(message)
        if self.push_based:
            self.reads[worker, keys] = True

    def send_rows(self, worker: int, keys: Keys, state: ServerState, tag: Tag) -> Sent:
        """Send state and rows: a range without a copy, few rows in one message."""
        requests: list[Any] = []
        send = self.comm.Isend
        if isinstance(keys, slice):
            rows, buffer = self.shard.values[keys], None
            self.uncopied.add(id(requests))
            requests.append(send(np.array([*state, len(rows)]), worker, tag))
            requests.append(send(rows, worker, tag))
            return Sent(requests, buffer)
        buffer = self.take_buffer(REPLY_FLOATS + len(keys) * self.width)
        head = buffer[:REPLY_FLOATS].view(np.int64)
        head[:] = *state, len(keys)
        packed = self.gather(keys, buffer, REPLY_FLOATS)
        if is_separate(len(keys), self.width):
            requests.append(send(head, worker, tag))
            requests.append(send(packed[REPLY_FLOATS:], worker, tag))
        else:
            requests.append(send(packed, worker, tag))
        return Sent(requests, buffer)

    def send_slot(
        self, worker: int, keys: np.ndarray, state: ServerState, kind: int
    ) -> Sent:
        """Copy rows to the slot that the worker has selected; send the state."""
        slot = self.channels[worker].replies.values(kind, len(keys) * self.width)
        rows = self.gather(keys, slot, 0)
        count_copy(self.comm, rows, worker)
        head = np.array([*state, len(keys)])
        return Sent([self.comm.Isend(head, worker, Tag.VALUES)], None)

    def send_changes(self, worker: int, state: ServerState) -> None:
        """Start to send a worker the changed rows that it has read."""
        changed = np.flatnonzero(self.dirty & self.reads[worker]).astype(np.int32)
        count = len(changed)
        if count == self.rows:
            message = self.send_rows(worker, slice(0, self.rows), state, Tag.CHANGED)
        else:  # the head, then row numbers and rows
            buffer = self.take_buffer(count * (1 + self.width))
            buffer[:count].view(np.int32)[:] = changed
            head, body = np.array([*state, count]), self.gather(changed, buffer, count)
            requests = [
                self.comm.Isend(part, worker, Tag.CHANGED) for part in (head, body)
            ]
            message = Sent(requests, buffer)
        self.sent[worker][CHANGES].append(message)

    def take_buffer(self, floats: int) -> np.ndarray:
        """Return a buffer of at least `floats` float32 elements, reused if possible."""
        buffer = (
            self.free_buffers.pop()
            if self.free_buffers
            else np.empty(floats, np.float32)
        )
        return buffer if buffer.size >= floats else np.empty(floats, np.float32)

    def gather(self, keys: np.ndarray, buffer: np.ndarray, start: int) -> np.ndarray:
        """Copy rows to the buffer from start on; return the buffer up to their end."""
        stop = start + len(keys) * self.width
        rows = buffer[start:stop].reshape(-1, self.width)
        np.take(self.shard.values, keys, axis=0, out=rows, mode="clip")
        return buffer[:stop]

    def send_last(self, worker: int) -> None:
        """Send a worker the message that ends the changed rows."""
        request = self.comm.Isend(LAST, worker, Tag.CHANGED)
        self.sent[worker][CHANGES].append(Sent([request], None))

    def before_update(self) -> None:
        """Copy the rows if messages that are sent from them may be in transit."""
        if self.uncopied:
            self.shard.values = self.shard.values.copy()
            self.uncopied.clear()

    def release_received(self, worker: int, head: ServerHead) -> None:
        """Drop the messages that a worker has received, by the counts in its head."""
        received = self.received_counts[worker]
        if head.replies == received[REPLIES] and head.changes == received[CHANGES]:
            return
        counts = zip((head.replies, head.changes), received, strict=True)
        for (count, known), sent in zip(counts, self.sent[worker], strict=True):
            if not known <= count <= known + len(sent):
                raise Malformed(f"{count} of {known + len(sent)} messages received")
        while received[REPLIES] < head.replies:
            self.drop(worker, REPLIES)
        while received[CHANGES] < head.changes:
            self.drop(worker, CHANGES)

    def drop(self, worker: int, kind: int) -> None:
        """Drop the oldest message to a worker, which has received it."""
        message = self.sent[worker][kind].pop(0)
        self.uncopied.discard(id(message.requests))
        self.received_counts[worker][kind] += 1
        if not all([request.Test() for request in message.requests]):
            self.unfinished.append(message)
        elif message.buffer is not None:
            self.free_buffers.append(message.buffer)

    def abandon(self, worker: int) -> None:
        """Do not wait for a worker to receive the messages that were sent to it."""
        for messages in self.sent[worker]:
            self.unfinished.extend(messages)
            messages.clear()

    def settle(self) -> None:
        """Wait until all messages have arrived."""
        for worker, messages in enumerate(self.sent):
            for kind in (REPLIES, CHANGES):
                while messages[kind]:
                    self.comm.Waitall(messages[kind][0].requests)
                    self.drop(worker, kind)
        if self.unfinished:  # keeps their memory
            uncounted(self.comm).cache.abandoned.extend(self.unfinished)
