"""Merge the trace events of a timeline and of JAX into one trace, on one clock.

The offset between the clocks is computed from marks: events that are both in the
timeline of a rank and, as annotations, in its JAX trace.
"""

import gzip
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from dml.metrics.timeline import Bounds, Event
from dml.types import Timeline

MARK = "clock mark"  # name of the interval and of the annotation of a mark
Marks = dict[int, list[Bounds]]  # marks of each rank, in seconds of the timeline


class Fit(NamedTuple):
    """The offset between the clocks of a JAX trace and the timeline."""

    offset: float  # microseconds to add to times of the trace
    error: float  # upper bound of the error of the offset, in microseconds


def read(folder: Path) -> list[Event]:
    """Return the events of JAX's newest trace in a folder; [] if there is none."""
    traces = folder.glob("plugins/profile/*/*.trace.json.gz")
    newest = max(traces, key=lambda path: path.stat().st_mtime, default=None)
    if newest is None:
        return []
    with gzip.open(newest) as file:
        return [event for event in json.load(file)["traceEvents"] if "ph" in event]


def write(path: Path, events: Sequence[Event], metadata: Mapping[str, Any]) -> None:
    """Write path.json.gz, for ui.perfetto.dev."""
    trace = {
        "displayTimeUnit": "ns",
        "otherData": dict(metadata),
        "traceEvents": events,
    }
    with gzip.open(f"{path}.json.gz", "wt") as file:
        json.dump(trace, file, separators=(",", ":"))


def split_marks(timeline: Timeline) -> tuple[Timeline, Marks]:
    """Return the timeline without marks, and the marks of each rank, in order."""
    marks: Marks = {}
    for interval in timeline.intervals:
        if interval.name == MARK:
            marks.setdefault(interval.rank, []).append((interval.start, interval.end))
    intervals = [interval for interval in timeline.intervals if interval.name != MARK]
    return Timeline(intervals, timeline.messages), marks


def fit(trace: Sequence[Event], marks: Sequence[Bounds]) -> Fit:
    """Return the offset of a trace, from its annotations and the marks around them.

    An annotation is inside its mark. The offset is computed from the annotation whose
    duration is nearest to the duration of its mark, because its error is smallest.
    """
    annotations = sorted(
        (event["ts"], event.get("dur", 0.0))
        for event in trace
        if event["ph"] == "X" and event["name"] == MARK
    )
    fits = [
        Fit(
            offset=(1e6 * (start + end) - duration) / 2 - time,
            error=max(0.0, (1e6 * (end - start) - duration) / 2),
        )
        for (time, duration), (start, end) in zip(annotations, marks, strict=False)
    ]
    return min(fits, key=lambda candidate: candidate.error, default=Fit(0.0, 0.0))


def merge(
    messages: Sequence[Event],
    traces: Mapping[int, Sequence[Event]],
    fits: Mapping[int, Fit],
    title: str = "messages",
) -> list[Event]:
    """Return the events of all traces: messages in process 0, JAX in other processes.

    Processes and flows are renumbered, because their ids are unique within one trace
    only. Times are shifted so that none is negative.

    Args:
      messages: Events of the timeline.
      traces: Events of each rank's JAX trace.
      fits: Offset of each rank's JAX trace.
      title: Name of the process of the timeline.
    """
    events = [*process(0, title), *messages] if messages else []
    flows = count(
        1 + max((event["id"] for event in messages if "id" in event), default=-1)
    )
    pids = count(1)
    for rank in sorted(traces):
        pid_of: dict[Any, int] = defaultdict(pids.__next__)
        flow_of: dict[Any, int] = defaultdict(flows.__next__)
        for event in traces[rank]:
            event = event | {"pid": pid_of[event["pid"]]}
            if event["ph"] == "M" and event["name"] == "process_name":
                events += process(event["pid"], f"rank {rank} JAX {name_of(event)}")
                continue
            if event["ph"] == "M" and event["name"] == "process_sort_index":
                continue
            if "id" in event:
                event["id"] = flow_of[event["id"]]
            if "ts" in event:
                event["ts"] = round(event["ts"] + fits[rank].offset, 3)
            events.append(event)
    return shift_to_zero(events)


def process(pid: int, name: str) -> list[Event]:
    """Return the events that set the name and the position of a process."""
    metadata = {"ph": "M", "pid": pid}
    return [
        metadata | {"name": "process_name", "args": {"name": name}},
        metadata | {"name": "process_sort_index", "args": {"sort_index": pid}},
    ]


def name_of(event: Event) -> str:
    """Return the name in a metadata event."""
    return str(event["args"]["name"])


def shift_to_zero(events: list[Event]) -> list[Event]:
    """Return the events shifted so that none is before 0."""
    first = min((event["ts"] for event in events if "ts" in event), default=0.0)
    if first >= 0:
        return events
    return [
        event | {"ts": round(event["ts"] - first, 3)} if "ts" in event else event
        for event in events
    ]
