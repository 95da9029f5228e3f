"""Traces of calls and messages of all ranks, merged into one timeline.

Rank 0 collects the traces of all ranks and matches sends with receives.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np

from dml.types import Comm, Interval, Message, Timeline
from dml.wire.comm.tags import Tag

CALL = np.dtype([("name", "S24"), ("start", "f8"), ("end", "f8")])
MESSAGE = np.dtype(
    [("group", "i8"), ("peer", "i8"), ("tag", "i8"), ("nbytes", "i8"), ("when", "f8")]
)
MEMBER = np.dtype([("group", "i8"), ("rank", "i8")])


class Notes:
    """The trace of one rank, on all its communicators, by its own clock.

    A message is a list of MESSAGE's fields; peers are ranks of the group. A receive is
    entered when it is posted, since MPI fills receives in this order; its fields are
    NaN until the message has arrived.
    """

    def __init__(self, world: Comm) -> None:
        self.world = world  # the outermost communicator, untraced
        self.comms: WeakSet[Any] = WeakSet()  # the traced ones of this rank
        self.on, self.limit = False, 0
        self.calls: list[tuple[str, float, float]] = []
        self.sends: list[list] = []
        self.receives: list[list] = []
        self.members: list[tuple[int, int]] = []  # group and rank by communicator
        self.met: list[float] = []  # when this rank left each barrier of `align`

    def switch(self, on: bool) -> None:
        """Switch tracing of all communicators of this rank on or off."""
        if on is not self.on:
            self.on = on
            for comm in self.comms:
                comm.switch(on)


def records(rows: Sequence, dtype: np.dtype) -> np.ndarray:
    return np.array([tuple(row) for row in rows], dtype)


class Pages(NamedTuple):
    """The trace of one rank as arrays, which are sent to rank 0."""

    calls: np.ndarray
    sends: np.ndarray
    receives: np.ndarray
    members: np.ndarray
    met: np.ndarray

    @staticmethod
    def of(notes: Notes) -> "Pages":
        return Pages(
            records(notes.calls, CALL),
            records(notes.sends, MESSAGE),
            records(notes.receives, MESSAGE),
            records(notes.members, MEMBER),
            np.array(notes.met, np.float64),
        )

    def send(self, comm: Comm) -> None:
        comm.Send(np.array([len(page) for page in self]), 0, Tag.COLLECT)
        for page in self:
            comm.Send(page.view(np.uint8), 0, Tag.COLLECT)

    @staticmethod
    def receive(comm: Comm, source: int) -> "Pages":
        lengths = np.empty(len(Pages._fields), np.int64)
        comm.Recv(lengths, source, Tag.COLLECT)
        kinds = CALL, MESSAGE, MESSAGE, MEMBER, np.dtype(np.float64)
        pages = [np.empty(n, kind) for n, kind in zip(lengths, kinds, strict=True)]
        for page in pages:
            comm.Recv(page.view(np.uint8), source, Tag.COLLECT)
        return Pages(*pages)


def collect(notes: Notes) -> Timeline | None:
    """Return the timeline of all ranks on rank 0, None elsewhere; collective."""
    comm = notes.world
    comm.Barrier()  # so that no receive from ANY takes a collected message
    hosts, mine = comm.platform.hosts(), Pages.of(notes)
    if comm.rank:
        mine.send(comm)
        return None
    books = [mine] + [Pages.receive(comm, rank) for rank in range(1, comm.size)]
    behind = origins([book.met for book in books], hosts)
    intervals = [
        Interval(rank, name.decode(), start - behind[rank], end - behind[rank])
        for rank, book in enumerate(books)
        for name, start, end in book.calls.tolist()
    ]
    intervals.sort(key=lambda interval: (interval.start, -interval.end, interval.rank))
    return Timeline(intervals, matched_messages(books, behind))


def origins(met: Sequence[np.ndarray], hosts: Sequence[int]) -> list[float]:
    """Return the offset of each rank's clock.

    Ranks of one host share a clock. The offset between two hosts is the median, over
    the barriers, of the difference between the times at which their first ranks leave;
    its error is the time of a message between hosts. Virtual ranks share one clock.
    """
    if not len(met[0]):
        return [0.0] * len(hosts)
    left = np.array(met)  # ranks × barriers
    number = np.array(hosts)
    first = np.array([left[number == host].min(0) for host in range(max(hosts) + 1)])
    ahead = np.median(first - first[0], axis=1)
    return (first[0, -1] + ahead[number]).tolist()


def matched_messages(books: Sequence[Pages], behind: Sequence[float]) -> list[Message]:
    """Match the n-th send with the n-th receive of one group, source, dest and tag.

    Messages of one kind never overtake each other. Messages that only one side has
    traced are dropped: they were in transit when tracing began or ended.
    """
    named = {
        member: rank
        for rank, book in enumerate(books)
        for member in book.members.tolist()
    }
    arrivals: dict[Any, list[float]] = defaultdict(list)
    for dest, book in enumerate(books):
        for group, peer, tag, _, when in book.receives.tolist():
            if peer >= 0:  # otherwise a receive from ANY without a message
                key = group, named[group, peer], dest, tag
                arrivals[key].append(when - behind[dest])  # NaN where nothing came
    found, taken = [], dict.fromkeys(arrivals, 0)
    for source, book in enumerate(books):
        for group, peer, tag, nbytes, when in book.sends.tolist():
            dest = named[group, peer]
            key = group, source, dest, tag
            n = taken.get(key, 0)
            if n < len(arrivals.get(key, ())):
                taken[key] = n + 1
                sent, received = when - behind[source], arrivals[key][n]
                if received == received:
                    found.append(Message(source, dest, tag, nbytes, sent, received))
    return sorted(found, key=lambda one: (one.sent, one.source, one.dest, one.received))
