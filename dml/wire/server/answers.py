"""The rows that a server sends to workers: answers to pulls, and changed rows.

Consecutive rows are sent without a copy. While such a message may be in transit, the
server's update works on a copy of the rows, so no message has rows of two versions.
Each message of a worker has the number of answers that the worker has received.
"""

from typing import Any, NamedTuple

import numpy as np

from dml.types import Comm, Shard
from dml.wire.comm.tags import Tag
from dml.wire.reducers.rows import Keys
from dml.wire.server.header import FLOATS, LAST, Head

ANSWERS, CHANGES = 0, 1


class State(NamedTuple):
    """The state of the server, sent before rows."""

    clock: int
    version: int
    applied: int  # of the worker's pushes


class Sent(NamedTuple):
    """One message of rows in transit."""

    requests: list[Any]
    room: np.ndarray | None  # memory that can be used again


class Answers:
    """The messages that have been sent and may not have arrived."""

    def __init__(self, comm: Comm, shard: Shard, workers: int, push_based: bool):
        self.comm, self.shard, self.workers = comm, shard, workers
        self.rows, self.width = shard.values.shape
        # by worker: answers, and changes
        self.sent: list[tuple[list[Sent], list[Sent]]]
        self.sent = [([], []) for _ in range(workers)]
        self.had = [[0, 0] for _ in range(workers)]
        self.lent: set[int] = set()  # messages sent from the rows as they are now
        self.rooms: list[np.ndarray] = []
        self.push_based = push_based
        if push_based:
            self.reads = np.zeros((workers, self.rows), bool)  # what each has read
            self.dirty = np.zeros(self.rows, bool)  # since the last clock

    def answer(self, worker: int, at: Keys, state: State) -> None:
        """Begin to send rows to a worker."""
        self.sent[worker][ANSWERS].append(self.give(worker, at, state, Tag.VALUES))
        if self.push_based:
            self.reads[worker, at] = True

    def give(self, worker: int, at: Keys, state: State, tag: Tag) -> Sent:
        """Send state and rows: a range without a copy, others in one message."""
        requests: list[Any] = []
        if isinstance(at, slice):
            rows, room = self.shard.values[at], None
            self.lent.add(id(requests))
            requests.append(self.comm.Isend(np.array([*state, len(rows)]), worker, tag))
            requests.append(self.comm.Isend(rows, worker, tag))
        else:
            room = self.room(FLOATS + len(at) * self.width)
            room[:FLOATS].view(np.int64)[:] = *state, len(at)
            whole = self.gather(at, room, FLOATS)
            requests.append(self.comm.Isend(whole, worker, tag))
        return Sent(requests, room)

    def send_changes(self, worker: int, state: State) -> None:
        """Begin to send a worker the changed rows among those that it has read."""
        at = np.flatnonzero(self.dirty & self.reads[worker]).astype(np.int32)
        if len(at) == self.rows:
            given = self.give(worker, slice(0, self.rows), state, Tag.CHANGED)
        else:  # their count, then their numbers and the rows
            room = self.room(len(at) * (1 + self.width))
            room[: len(at)].view(np.int32)[:] = at
            parts = np.array([*state, len(at)]), self.gather(at, room, len(at))
            requests = [self.comm.Isend(part, worker, Tag.CHANGED) for part in parts]
            given = Sent(requests, room)
        self.sent[worker][CHANGES].append(given)

    def room(self, floats: int) -> np.ndarray:
        """Return memory of an answer that has arrived, or new memory."""
        room = self.rooms.pop() if self.rooms else np.empty(floats, np.float32)
        return room if room.size >= floats else np.empty(floats, np.float32)

    def gather(self, at: np.ndarray, room: np.ndarray, start: int) -> np.ndarray:
        """Copy rows to the buffer from start on; return the buffer up to their end."""
        stop = start + len(at) * self.width
        rows = room[start:stop].reshape(-1, self.width)
        np.take(self.shard.values, at, axis=0, out=rows, mode="clip")
        return room[:stop]

    def send_last(self, worker: int) -> None:
        """Tell a worker that no more changes follow."""
        request = self.comm.Isend(LAST, worker, Tag.CHANGED)
        self.sent[worker][CHANGES].append(Sent([request], None))

    def before_update(self) -> None:
        """Copy the rows if messages that are sent from them may be in transit."""
        if self.lent:
            self.shard.values = self.shard.values.copy()
            self.lent.clear()

    def forget(self, worker: int, head: Head) -> None:
        """Drop the messages that a worker has received, by the counts in its head."""
        for kind, count in ((ANSWERS, head.answers), (CHANGES, head.changes)):
            while self.had[worker][kind] < count:
                self.drop(worker, kind)

    def drop(self, worker: int, kind: int) -> None:
        """Drop the oldest message to a worker, after its send has completed."""
        given = self.sent[worker][kind].pop(0)
        self.comm.Waitall(given.requests)
        self.lent.discard(id(given.requests))
        self.had[worker][kind] += 1
        if given.room is not None:
            self.rooms.append(given.room)

    def settle(self) -> None:
        """Return when all messages have arrived."""
        for worker in range(self.workers):
            for kind in (ANSWERS, CHANGES):
                while self.sent[worker][kind]:
                    self.drop(worker, kind)
