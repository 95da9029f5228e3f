"""Intervals and messages of a run on virtual ranks, and the critical path."""

from bisect import bisect_right
from collections import defaultdict, deque
from typing import Any, NamedTuple

from dml.types import Interval, Message, Timeline


class Trace:
    """Intervals of calls that wait, and messages, of all ranks."""

    def __init__(self) -> None:
        self.intervals: list[Interval] = []
        self.messages: list[Message] = []
        # sends without a receive: by group, ranks and tag, in order
        self.sends: dict[Any, deque] = defaultdict(deque)

    def sent(self, comm: Any, dest: int, tag: int, nbytes: int) -> None:
        key = id(comm.shared), comm.rank, dest, int(tag)
        process = comm.process
        self.sends[key].append((process.clock, nbytes, process.rank))

    def received(self, comm: Any, source: int, tag: int) -> None:
        """Match a received message with the first send that has no receive."""
        process = comm.process
        queue = self.sends.get((id(comm.shared), source, comm.rank, int(tag)))
        if queue:
            sent, nbytes, rank = queue.popleft()
            self.messages.append(
                Message(rank, process.rank, int(tag), nbytes, sent, process.clock)
            )

    def interval(self, process: Any, name: str, start: float) -> None:
        if process.clock > start:
            self.intervals.append(Interval(process.rank, name, start, process.clock))

    def timeline(self) -> Timeline:
        intervals = sorted(
            self.intervals, key=lambda one: (one.start, -one.end, one.rank)
        )
        return Timeline(intervals, sorted(self.messages, key=lambda one: one.sent))


class CriticalPath(NamedTuple):
    """The chain of messages and of work that ends last.

    Attributes:
      messages: Messages on it, from the last to the first.
      seconds: Seconds of these messages; the rest is work of ranks.
    """

    messages: list[Message]
    seconds: float


def critical_path(trace: Trace, rank: int, end: float) -> CriticalPath:
    """Return the path that ends on a rank at a time.

    Before a message that was awaited, the path is on its sender; otherwise it stays on
    the rank.
    """
    arrived: dict[int, list[Message]] = defaultdict(list)
    for message in sorted(trace.messages, key=lambda one: one.received):
        arrived[message.dest].append(message)
    times = {dest: [one.received for one in each] for dest, each in arrived.items()}
    calls: dict[int, list[Interval]] = defaultdict(list)
    for interval in sorted(trace.intervals, key=lambda one: one.end):
        calls[interval.rank].append(interval)
    ends = {one: [each.end for each in found] for one, found in calls.items()}
    path: list[Message] = []
    seconds, time = 0.0, end
    while True:
        k = bisect_right(times.get(rank, []), time) - 1
        while k >= 0 and not awaited(arrived[rank][k], calls[rank], ends.get(rank, [])):
            k -= 1
        if k < 0:
            return CriticalPath(path, seconds)
        message = arrived[rank][k]
        path.append(message)
        seconds += message.received - message.sent
        if message.sent >= time:
            return CriticalPath(path, seconds)
        rank, time = message.source, message.sent


def awaited(message: Message, calls: list[Interval], ends: list[float]) -> bool:
    """Return whether the receiver waited before the message was sent."""
    k = bisect_right(ends, message.received)
    for interval in calls[max(k - 1, 0) : k + 1]:
        if interval.start <= message.sent and message.received <= interval.end:
            return True
    return False
