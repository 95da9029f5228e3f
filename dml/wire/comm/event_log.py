"""All events of one rank, by communicator: recorded one by one, or read from a record.

At the end of a recording rank 0 collects the events of all ranks.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dml.types import Comm
from dml.wire.comm.events import Events, Kind, message
from dml.wire.comm.tags import Tag

Words = list[np.ndarray]  # of one rank: uint64, one array a communicator


class Log:
    """The events of a recording, initially empty, or of a record to be replayed.

    Communicators are numbered in the order in which this rank makes them. Each has its
    own events, as calls of threads on different communicators have no order.
    """

    def __init__(self, words: Sequence[np.ndarray] = ()) -> None:
        self.sections = [Events(words=some.tolist()) for some in words]
        self.rank = self.opened = 0
        self.pending: set[Any] = set()  # Irecvs without a message yet

    def where(self, number: int) -> str:
        part = f", communicator {number}" if number else ""
        return f"rank {self.rank}{part}"

    def open(self, comm: Comm, replays: bool) -> Events:
        """Return the events of the next communicator of this rank."""
        number, self.opened = self.opened, self.opened + 1
        if number == 0:
            self.rank = comm.rank
        if number == len(self.sections):
            self.sections.append(Events())
        events = self.sections[number]
        events.where = self.where(number)
        if replays:
            events.meets(Kind.GROUP, message(comm.rank, comm.size))
        else:
            events.add(Kind.GROUP, message(comm.rank, comm.size))
        return events

    def finish(self) -> None:
        """After a replay: raise BadInput if events are left."""
        for number, events in enumerate(self.sections):
            events.where = self.where(number)
            events.ends()

    def words(self) -> Words:
        """After a recording: return its events.

        An Irecv without a Wait either has a message, which a replay receives, or will
        never have one, for which a replay does not wait.
        """
        for request in list(self.pending):
            request.finish(request.request.Test)
        return [np.array(events.words, np.uint64) for events in self.sections]

    def collect(self, comm: Comm) -> list[Words] | None:
        """Return the events of all ranks on rank 0, None elsewhere; collective."""
        comm.Barrier()  # all messages sent before have arrived
        mine = self.words()
        comm = comm.Dup()  # without receives from ANY
        if comm.rank:
            comm.Send(np.array([len(mine)]), 0, Tag.COLLECT)
            comm.Send(np.array([len(some) for some in mine]), 0, Tag.COLLECT)
            comm.Send(np.concatenate(mine), 0, Tag.COLLECT)
            found = None
        else:
            found = [mine] + [received(comm, rank) for rank in range(1, comm.size)]
        comm.Free()
        return found


def received(comm: Comm, source: int) -> Words:
    number = np.empty(1, np.int64)
    comm.Recv(number, source, Tag.COLLECT)
    lengths = np.empty(number[0], np.int64)
    comm.Recv(lengths, source, Tag.COLLECT)
    words = np.empty(lengths.sum(), np.uint64)
    comm.Recv(words, source, Tag.COLLECT)
    return np.split(words, np.cumsum(lengths)[:-1])
