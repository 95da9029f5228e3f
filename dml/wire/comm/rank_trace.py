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
    [("group", "i8"), ("peer", "i8"), ("tag", "i8"), ("nbytes", "i8"), ("time", "f8")]
)
MEMBER = np.dtype([("group", "i8"), ("rank", "i8")])


class RankTrace:
    """The trace of one rank, on all its communicators, in seconds of the rank's clock.

    A send or receive is a list of MESSAGE's fields; the peer is a rank of the group. A
    receive is entered when it is posted, since MPI matches receives in this order; its
    time is NaN until the message has arrived.
    """

    def __init__(self, world: Comm) -> None:
        self.world = world  # the communicator that the first Traced wraps
        self.comms: WeakSet[Any] = WeakSet()  # the Traced communicators of this rank
        self.on, self.limit = False, 0
        self.calls: list[tuple[str, float, float]] = []
        self.sends: list[list] = []
        self.receives: list[list] = []
        self.members: list[tuple[int, int]] = []  # (group, rank) per communicator
        self.barrier_times: list[float] = []  # ends of the barriers of `Traced.align`

    def switch(self, on: bool) -> None:
        """Switch tracing of all communicators of this rank on or off."""
        if on is not self.on:
            self.on = on
            for comm in self.comms:
                comm.switch(on)


def structured(rows: Sequence[Sequence], dtype: np.dtype) -> np.ndarray:
    """Return rows as a structured array."""
    return np.array([tuple(row) for row in rows], dtype)


class TraceArrays(NamedTuple):
    """The trace of one rank as arrays, which are sent to rank 0."""

    calls: np.ndarray
    sends: np.ndarray
    receives: np.ndarray
    members: np.ndarray
    barrier_times: np.ndarray

    @staticmethod
    def from_trace(trace: RankTrace) -> "TraceArrays":
        return TraceArrays(
            structured(trace.calls, CALL),
            structured(trace.sends, MESSAGE),
            structured(trace.receives, MESSAGE),
            structured(trace.members, MEMBER),
            np.array(trace.barrier_times, np.float64),
        )

    def send(self, comm: Comm) -> None:
        """Send to rank 0."""
        comm.Send(np.array([len(array) for array in self]), 0, Tag.COLLECT)
        for array in self:
            comm.Send(array.view(np.uint8), 0, Tag.COLLECT)

    @staticmethod
    def receive(comm: Comm, source: int) -> "TraceArrays":
        lengths = np.empty(len(TraceArrays._fields), np.int64)
        comm.Recv(lengths, source, Tag.COLLECT)
        dtypes = CALL, MESSAGE, MESSAGE, MEMBER, np.dtype(np.float64)
        arrays = [
            np.empty(length, dtype)
            for length, dtype in zip(lengths, dtypes, strict=True)
        ]
        for array in arrays:
            comm.Recv(array.view(np.uint8), source, Tag.COLLECT)
        return TraceArrays(*arrays)


def collect(trace: RankTrace) -> Timeline | None:
    """Return the timeline of all ranks on rank 0, None elsewhere; collective."""
    comm = trace.world
    comm.Barrier()  # so that no receive from ANY takes a collected message
    hosts = comm.platform.hosts()
    arrays = TraceArrays.from_trace(trace)
    if comm.rank:
        arrays.send(comm)
        return None
    traces = [arrays] + [
        TraceArrays.receive(comm, rank) for rank in range(1, comm.size)
    ]
    return merged(traces, hosts)


def merged(traces: Sequence[TraceArrays], hosts: Sequence[int]) -> Timeline:
    """Return the timeline of the traces of ranks 0, 1, …, on these hosts."""
    zeros = clock_origins([trace.barrier_times for trace in traces], hosts)
    intervals = [
        Interval(rank, name.decode(), start - zeros[rank], end - zeros[rank])
        for rank, trace in enumerate(traces)
        for name, start, end in trace.calls.tolist()
    ]
    intervals.sort(key=lambda interval: (interval.start, -interval.end, interval.rank))
    return Timeline(intervals, matched_messages(traces, zeros))


def clock_origins(
    barrier_times: Sequence[np.ndarray], hosts: Sequence[int]
) -> list[float]:
    """Return the time of the last barrier on each rank's clock, the timeline's zero.

    Ranks of one host share a clock. The offset between the clocks of two hosts is the
    median, over the barriers, of the difference between the times at which the first
    rank of each host leaves; its error is the time of a message between hosts. Virtual
    ranks share one clock; their zero is 0.

    Args:
      barrier_times: Per rank, the times at which it left each barrier of `align`.
      hosts: Host number of each rank.
    """
    if not len(barrier_times[0]):
        return [0.0] * len(hosts)
    times_RxB = np.array(barrier_times)
    host_R = np.array(hosts)
    first_HxB = np.array(
        [times_RxB[host_R == host].min(0) for host in range(max(hosts) + 1)]
    )
    offset_H = np.median(first_HxB - first_HxB[0], axis=1)
    return (first_HxB[0, -1] + offset_H[host_R]).tolist()


def matched_messages(
    traces: Sequence[TraceArrays], zeros: Sequence[float]
) -> list[Message]:
    """Match the n-th send with the n-th receive of each group, source, dest and tag.

    Messages with equal group, source, dest and tag do not overtake each other. Messages
    that only one of the two ranks has traced are dropped: they were in transit when
    tracing began or ended.

    Args:
      traces: Traces of all ranks.
      zeros: Time that is subtracted from the times of each rank.
    """
    world_rank = {
        member: rank
        for rank, trace in enumerate(traces)
        for member in trace.members.tolist()
    }
    arrivals: dict[Any, list[float]] = defaultdict(list)
    for dest, trace in enumerate(traces):
        for group, peer, tag, _, time in trace.receives.tolist():
            # otherwise a receive from ANY without a message, or from PROC_NULL
            if (group, peer) in world_rank:
                key = group, world_rank[group, peer], dest, tag
                arrivals[key].append(time - zeros[dest])  # NaN without a message
    messages = []
    matched = dict.fromkeys(arrivals, 0)  # number of sends so far
    for source, trace in enumerate(traces):
        for group, peer, tag, nbytes, time in trace.sends.tolist():
            dest = world_rank.get((group, peer), -1)
            key = group, source, dest, tag
            n = matched.get(key, 0)
            if n < len(arrivals.get(key, ())):
                matched[key] = n + 1
                sent, received = time - zeros[source], arrivals[key][n]
                if not np.isnan(received):
                    messages.append(Message(source, dest, tag, nbytes, sent, received))
    return sorted(messages, key=lambda m: (m.sent, m.source, m.dest, m.received))
