"""The events of one rank on all its communicators, to be recorded or replayed.

At the end of a recording rank 0 collects the events of all ranks.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dml.types import Comm
from dml.wire.comm.events import Events, Kind, message_number
from dml.wire.comm.tags import Tag

RankCodes = list[np.ndarray]  # encoded events of one rank: a uint64 array per comm


class Log:
    """The events of one rank: initially empty for a recording, given for a replay.

    Communicators are numbered in the order in which this rank makes them. Each has its
    own events, as calls of threads on different communicators have no order.
    """

    def __init__(self, codes: Sequence[np.ndarray] = ()) -> None:
        self.events_by_comm = [
            Events(codes=comm_codes.tolist()) for comm_codes in codes
        ]
        self.rank = 0  # in the first communicator
        self.opened = 0  # number of communicators opened
        self.pending: set[Any] = set()  # Irecvs that have not received a message

    def owner(self, number: int) -> str:
        """Return the rank and the number of a communicator as text."""
        suffix = f", communicator {number}" if number else ""
        return f"rank {self.rank}{suffix}"

    def open(self, comm: Comm, replays: bool) -> Events:
        """Return the events of the next communicator of this rank."""
        number = self.opened
        self.opened += 1
        if number == 0:
            self.rank = comm.rank
        if number == len(self.events_by_comm):
            self.events_by_comm.append(Events())
        events = self.events_by_comm[number]
        events.owner = self.owner(number)
        group = message_number(comm.rank, comm.size)
        if replays:
            events.expect(Kind.GROUP, group)
        else:
            events.add(Kind.GROUP, group)
        return events

    def finish(self) -> None:
        """After a replay: raise BadInput if there are further events."""
        for number, events in enumerate(self.events_by_comm):
            events.owner = self.owner(number)
            events.expect_end()

    def codes(self) -> RankCodes:
        """After a recording: return the encoded events of this rank.

        An Irecv without a Wait either has a message, which a replay receives, or will
        never have one, for which a replay does not wait.
        """
        for request in list(self.pending):
            request.finish(request.request.Test)
        return [np.array(events.codes, np.uint64) for events in self.events_by_comm]

    def collect(self, comm: Comm) -> list[RankCodes] | None:
        """Return the encoded events of all ranks on rank 0, else None; collective."""
        comm.Barrier()  # all messages sent before have arrived
        codes = self.codes()
        comm = comm.Dup()  # pending receives from ANY must not match these messages
        codes_by_rank = None
        if comm.rank == 0:
            others = [receive_codes(comm, rank) for rank in range(1, comm.size)]
            codes_by_rank = [codes, *others]
        else:
            comm.Send(np.array([len(codes)]), 0, Tag.COLLECT)
            comm.Send(np.array([len(array) for array in codes]), 0, Tag.COLLECT)
            comm.Send(np.concatenate(codes), 0, Tag.COLLECT)
        comm.Free()
        return codes_by_rank


def receive_codes(comm: Comm, source: int) -> RankCodes:
    """Receive the encoded events that `Log.collect` sends on another rank."""
    count = np.empty(1, np.int64)
    comm.Recv(count, source, Tag.COLLECT)
    lengths = np.empty(count[0], np.int64)
    comm.Recv(lengths, source, Tag.COLLECT)
    codes = np.empty(lengths.sum(), np.uint64)
    comm.Recv(codes, source, Tag.COLLECT)
    return np.split(codes, np.cumsum(lengths)[:-1])
