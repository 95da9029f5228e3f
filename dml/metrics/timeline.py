"""Chrome's trace events, the hash and the waiting times of a timeline."""

import hashlib
import json
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from dml.types import Interval, Message, Timeline

Event = dict[str, Any]
Bounds = tuple[float, float]  # start and end of an interval, in seconds
NANO = 1e-3  # a nanosecond in microseconds, the unit of trace events


def write(path: Path, timeline: Timeline) -> None:
    """Write path.json, for ui.perfetto.dev."""
    trace = {"displayTimeUnit": "ns", "traceEvents": events(timeline)}
    Path(f"{path}.json").write_text(json.dumps(trace, separators=(",", ":")))


def digest(timeline: Timeline) -> str:
    """Return the SHA-256 of all events; equal virtual runs have equal hashes."""
    lines = [repr(tuple(event)) for event in (*timeline.intervals, *timeline.messages)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def waiting_seconds(timeline: Timeline) -> dict[int, float]:
    """Return the seconds that each rank waited."""
    return {
        rank: sum(end - start for start, end in union(bounds))
        for rank, bounds in wait_intervals(timeline).items()
    }


def wait_intervals(timeline: Timeline) -> dict[int, list[Bounds]]:
    """Return the intervals in which each rank waited for other ranks.

    A call that receives messages waits from its start until the last of them is sent. A
    call that receives no message (Barrier, Allreduce, ...) waits from start to end. The
    parts of a phase "wait" outside of calls are also waiting time. Send does not wait.
    """
    arrivals = defaultdict(list)
    for message in timeline.messages:
        arrivals[message.dest].append((message.received, message.sent))
    for times_of_rank in arrivals.values():
        times_of_rank.sort()
    waited: dict[int, list[Bounds]] = {rank: [] for rank in ranks(timeline)}
    calls, phases = defaultdict(list), defaultdict(list)
    for interval in timeline.intervals:
        if interval.name == "wait":
            phases[interval.rank].append((interval.start, interval.end))
        elif is_call(interval):
            calls[interval.rank].append((interval.start, interval.end))
            until = call_waits_until(interval, arrivals[interval.rank])
            if until > interval.start and interval.name != "Send":
                waited[interval.rank].append((interval.start, until))
    for rank in waited:
        waited[rank] += subtract(phases[rank], calls[rank])
    return waited


def subtract(intervals: list[Bounds], holes: list[Bounds]) -> Iterator[Bounds]:
    """Yield the parts of the intervals outside of the holes."""
    edges = union(holes)
    for start, end in intervals:
        first = bisect_right(edges, (start, start))
        for hole_start, hole_end in edges[max(0, first - 1) :]:
            if hole_start >= end:
                break
            if hole_start > start:
                yield start, hole_start
            start = max(start, hole_end)
        if start < end:
            yield start, end


def call_waits_until(interval: Interval, arrivals: list[tuple[float, float]]) -> float:
    """Return the time until which a call waits.

    Args:
      interval: The call. A message received at its start belongs to the previous call.
      arrivals: (time received, time sent) of each message to the rank, sorted.
    """
    first = bisect_right(arrivals, (interval.start, math.inf))
    stop = bisect_right(arrivals, (interval.end, math.inf))
    send_times = [sent for _, sent in arrivals[first:stop]]
    return max(send_times, default=interval.end)


def is_call(interval: Interval) -> bool:
    """Return True for an MPI call, whose name is capitalized; False for a phase."""
    return interval.name[0].isupper()


def ranks(timeline: Timeline) -> list[int]:
    """Return the ranks that have intervals."""
    return sorted({interval.rank for interval in timeline.intervals})


def union(intervals: Iterable[Bounds], gap: float = 0.0) -> list[Bounds]:
    """Return the union of intervals; gaps of at most `gap` are closed."""
    result: list[Bounds] = []
    for start, end in sorted(intervals):
        if result and start - result[-1][1] <= gap:
            result[-1] = result[-1][0], max(end, result[-1][1])
        else:
            result.append((start, end))
    return result


# The format of trace events: https://perfetto.dev/docs/getting-started/other-formats


def events(timeline: Timeline) -> list[Event]:
    """Return the events of threads, then of slices and arrows in order of time.

    A rank is a thread, an interval a slice, a message an arrow.
    """
    timed = [slice_of(interval) for interval in timeline.intervals]
    for number, message in enumerate(timeline.messages):
        timed += arrow(number, message)
    # order matters: of slices that begin together, the longest, outer one comes first
    timed.sort(key=lambda event: (event["ts"], -event.get("dur", -1.0)))
    return [*threads(ranks(timeline)), *timed]


def threads(ranks: Iterable[int]) -> Iterator[Event]:
    """Yield the events that set the name and the position of each rank's thread."""
    for rank in ranks:
        thread = {"ph": "M", "pid": 0, "tid": rank}
        yield thread | {"name": "thread_name", "args": {"name": f"rank {rank}"}}
        yield thread | {"name": "thread_sort_index", "args": {"sort_index": rank}}


def micro(seconds: float) -> float:
    """Convert to microseconds, rounded to nanoseconds, the resolution of Perfetto."""
    return round(seconds * 1e6, 3)


def slice_of(interval: Interval) -> Event:
    """Return the slice of an interval."""
    start, end = micro(interval.start), micro(interval.end)
    return {
        "ph": "X",
        "name": interval.name,
        "cat": "call" if is_call(interval) else "phase",
        "pid": 0,
        "tid": interval.rank,
        "ts": start,
        "dur": round(end - start, 3),
    }


def arrow(number: int, message: Message) -> Iterator[Event]:
    """Yield the two events of a flow from the sender's slice to the receiver's slice.

    The second event is a nanosecond before the message is received, which is at the end
    of the receiver's slice, so that it lies in that slice.
    """
    sent, received = micro(message.sent), micro(message.received)
    flow = {"name": "message", "cat": "message", "id": number, "pid": 0}
    args = {"bytes": message.nbytes, "tag": message.tag}
    yield flow | {"ph": "s", "tid": message.source, "ts": sent, "args": args}
    received = max(sent, round(received - NANO, 3))
    yield flow | {"ph": "f", "bp": "e", "tid": message.dest, "ts": received}
