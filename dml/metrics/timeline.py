"""Chrome's trace events, a hash and the waiting time of a timeline."""

import hashlib
import json
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from dml.types import Flight, Span, Timeline

Event = dict[str, Any]
Interval = tuple[float, float]  # start, end
NANO = 1e-3  # of a microsecond, the unit of trace events


def write(path: Path, timeline: Timeline) -> None:
    """Write path.json, for ui.perfetto.dev."""
    trace = {"displayTimeUnit": "ns", "traceEvents": events(timeline)}
    Path(f"{path}.json").write_text(json.dumps(trace, separators=(",", ":")))


def digest(timeline: Timeline) -> str:
    """Return the sha256 of all events; equal virtual runs have equal hashes."""
    lines = [repr(tuple(one)) for one in (*timeline.spans, *timeline.flights)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def waiting(timeline: Timeline) -> dict[int, float]:
    """Return the seconds that each rank waited."""
    return {
        rank: sum(end - start for start, end in merged(each))
        for rank, each in waits(timeline).items()
    }


def waits(timeline: Timeline) -> dict[int, list[Interval]]:
    """Return the intervals in which each rank waited for other ranks.

    A call that receives messages waits until the last one is sent. A call that receives
    none (Barrier, Allreduce, ...) waits all the time, as does a phase named wait
    outside of calls. Send does not wait.
    """
    arrived = defaultdict(list)
    for flight in timeline.flights:
        arrived[flight.dest].append((flight.received, flight.sent))
    for each in arrived.values():
        each.sort()
    waited: dict[int, list[Interval]] = {rank: [] for rank in ranks(timeline)}
    calls, phases = defaultdict(list), defaultdict(list)
    for span in timeline.spans:
        if span.name == "wait":
            phases[span.rank].append((span.start, span.end))
        elif is_call(span):
            calls[span.rank].append((span.start, span.end))
            until = span_waits(span, arrived[span.rank])
            if until > span.start and span.name != "Send":
                waited[span.rank].append((span.start, until))
    for rank in waited:
        waited[rank] += without(phases[rank], calls[rank])
    return waited


def without(intervals: list[Interval], holes: list[Interval]) -> Iterator[Interval]:
    """Yield the parts of the intervals outside of the holes."""
    edges = merged(holes)
    for start, end in intervals:
        first = bisect_right(edges, (start, start))
        for opens, closes in edges[max(0, first - 1) :]:
            if opens >= end:
                break
            if opens > start:
                yield start, opens
            start = max(start, closes)
        if start < end:
            yield start, end


def span_waits(span: Span, arrived: list[tuple[float, float]]) -> float:
    """Return the time until which a call waits.

    arrived: times at which its rank received messages, and at which they were sent. A
    message received at the very start belongs to the call before.
    """
    first = bisect_right(arrived, (span.start, math.inf))
    after = bisect_right(arrived, (span.end, math.inf))
    sent = [sent for _, sent in arrived[first:after]]
    return max(sent, default=span.end)


def is_call(span: Span) -> bool:
    """Return whether a span is an MPI call, whose name is capitalized, or a phase."""
    return span.name[0].isupper()


def ranks(timeline: Timeline) -> list[int]:
    return sorted({span.rank for span in timeline.spans})


def merged(intervals: Iterable[Interval], gap: float = 0.0) -> list[Interval]:
    """Return the union of intervals; gaps of at most `gap` are closed."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start - found[-1][1] <= gap:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


# Trace events, as Chrome has them: https://perfetto.dev/docs/getting-started/other-formats


def events(timeline: Timeline) -> list[Event]:
    """Return a thread a rank, a slice a span, an arrow a message, sorted by time."""
    timed = [slice_of(span) for span in timeline.spans]
    for number, flight in enumerate(timeline.flights):
        timed += arrow(number, flight)
    # order matters: of slices that begin together, the outer one comes first
    timed.sort(key=lambda event: (event["ts"], -event.get("dur", -1.0)))
    return [*threads(ranks(timeline)), *timed]


def threads(ranks: Iterable[int]) -> Iterator[Event]:
    for rank in ranks:
        of = {"ph": "M", "pid": 0, "tid": rank}
        yield of | {"name": "thread_name", "args": {"name": f"rank {rank}"}}
        yield of | {"name": "thread_sort_index", "args": {"sort_index": rank}}


def micro(seconds: float) -> float:
    """Return microseconds, rounded to Perfetto's own nanoseconds."""
    return round(seconds * 1e6, 3)


def slice_of(span: Span) -> Event:
    start, end = micro(span.start), micro(span.end)
    return {
        **{"ph": "X", "name": span.name, "cat": "call" if is_call(span) else "phase"},
        **{"pid": 0, "tid": span.rank, "ts": start, "dur": round(end - start, 3)},
    }


def arrow(number: int, flight: Flight) -> Iterator[Event]:
    """Yield both ends of a flow from the sender's slice to the receiver's.

    The end lies in the slice whose end it is: a nanosecond earlier.
    """
    sent, received = micro(flight.sent), micro(flight.received)
    both = {"name": "message", "cat": "message", "id": number, "pid": 0}
    args = {"bytes": flight.nbytes, "tag": flight.tag}
    yield both | {"ph": "s", "tid": flight.source, "ts": sent, "args": args}
    received = max(sent, round(received - NANO, 3))
    yield both | {"ph": "f", "bp": "e", "tid": flight.dest, "ts": received}
