"""All events of one rank, by communicator: they come in one by one, or from a record.

What is left to know at the end is asked there; rank 0 collects the ranks' events.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dml.types import Comm
from dml.wire.messages.events import Events, Kind, message
from dml.wire.messages.tags import Tag

Words = list[np.ndarray]  # of one rank: uint64, one array a communicator


class Log:
    """Empty, to be recorded; or with the words of a record, to be replayed.

    Communicators are numbered as this rank makes them, each with events of its own:
    what a thread does on its communicator is in no order with the others.
    """

    def __init__(self, words: Sequence[np.ndarray] = ()) -> None:
        self.sections = [Events(words=some.tolist()) for some in words]
        self.rank = self.opened = 0
        self.pending: set[Any] = set()  # Irecvs whose message nobody knows yet

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
        """After a replay: raise where the record goes on."""
        for number, events in enumerate(self.sections):
            events.where = self.where(number)
            events.ends()

    def words(self) -> Words:
        """After a recording: return its events.

        An Irecv that nobody waited for has had a message, or never will: a replay must
        take the one, and not wait for the other.
        """
        for request in list(self.pending):
            request.finish(request.request.Test)
        return [np.array(events.words, np.uint64) for events in self.sections]

    def collect(self, comm: Comm) -> list[Words] | None:
        """Return the events of all ranks on rank 0, None elsewhere; collective."""
        comm.Barrier()  # what was sent is there, where it is wanted
        mine = self.words()
        comm = comm.Dup()  # on which no receive from anyone is left
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
