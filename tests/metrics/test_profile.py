"""A timeline and traces of JAX made one: by hand, with clocks known to differ."""

import gzip
import json
import os

import pytest

from dml.metrics.profile import MARK, Fit, fit, merge, read, split_marks, write
from dml.metrics.timeline import events
from dml.types import Interval, Message, Timeline

INTERVALS = [Interval(0, "gradient", 1.0, 2.0), Interval(1, "Recv", 1.5, 3.0)]
FOUND = Timeline(INTERVALS, [Message(0, 1, 0, 8, 2.0, 3.0)])


def slices(name, *times, pid=701, **more):
    of = {"ph": "X", "pid": pid, "tid": 5, "name": name}
    return [of | {"ts": ts, "dur": dur} | more for ts, dur in times]


def jax(name="/host:CPU", pid=701):
    of = {"ph": "M", "pid": pid}
    return [
        of | {"name": "process_name", "args": {"name": name}},
        of | {"name": "process_sort_index", "args": {"sort_index": pid}},
        of | {"name": "thread_name", "tid": 5, "args": {"name": "python"}},
        *slices("work", (10.0, 1000.0), pid=pid),
    ]


def names(trace):
    return {e["pid"]: e["args"]["name"] for e in trace if e["name"] == "process_name"}


def test_the_narrowest_mark_sets_the_clock():
    # JAX's clock began at 2 s of the timeline's; between reading and noting pass µs
    trace = [*slices(MARK, (500.0, 1.0), (600.0, 1.0)), *slices("other", (0.0, 1.0))]
    wide, narrow = (2.0005 - 90e-6, 2.000501), (2.0006 - 1e-6, 2.0006 + 2e-6)
    found = fit(trace, [wide, narrow])
    assert found == pytest.approx(Fit(2e6, 1.0), abs=1e-3)
    assert fit(trace[:1], [wide]) == pytest.approx(Fit(2e6 - 45, 45.0), abs=1e-3)
    assert fit(jax(), [wide]) == fit(trace, []) == Fit(0, 0)


def test_marks_are_no_part_of_the_timeline():
    times = (1, 0.1, 0.2), (0, 0.3, 0.4), (1, 0.5, 0.6)
    marks = [Interval(rank, MARK, *bounds) for rank, *bounds in times]
    found, of = split_marks(Timeline([*marks, *INTERVALS], FOUND.messages))
    assert found == FOUND
    assert of == {0: [(0.3, 0.4)], 1: [(0.1, 0.2), (0.5, 0.6)]}


def test_every_rank_has_its_own_processes_on_the_messages_clock():
    traces = {1: jax(), 0: [*jax(), *jax("/device:GPU:0", 3)]}
    trace = merge(events(FOUND), traces, {0: Fit(1e6, 0), 1: Fit(2e6, 0)})
    jaxs = "rank 0 JAX /host:CPU", "rank 0 JAX /device:GPU:0", "rank 1 JAX /host:CPU"
    assert names(trace) == dict(enumerate(("messages", *jaxs)))
    starts = {e["pid"]: e["ts"] for e in trace if e["name"] == "work"}
    assert starts == {1: 1e6 + 10, 2: 1e6 + 10, 3: 2e6 + 10}
    sorts = [e["args"]["sort_index"] for e in trace if e["name"].endswith("sort_index")]
    assert sorted(sorts) == [0, 0, 1, 1, 2, 3]  # of processes, and of two ranks
    kept = [event for event in trace if event["pid"] == 0][2:]
    assert kept == events(FOUND)


def test_flows_of_different_traces_stay_apart():
    flow = [
        {"ph": phase, "pid": 701, "tid": 5, "name": "flow", "id": 0, "ts": float(n)}
        for n, phase in enumerate("sf")
    ]
    trace = merge(events(FOUND), {0: flow, 1: flow}, {0: Fit(0, 0), 1: Fit(0, 0)})
    ids = [event["id"] for event in trace if "id" in event]
    assert [ids.count(number) for number in (0, 1, 2)] == [2, 2, 2]


def test_no_time_is_below_zero_and_all_move_together():
    given = jax()
    trace = merge(events(FOUND), {0: given}, {0: Fit(-5e6, 0)})
    assert given == jax()  # is left as it was
    times = {e["name"]: e["ts"] for e in trace if "ts" in e}
    assert times["work"] == 0
    assert times["gradient"] == 1e6 + 5e6 - 10
    assert trace[0]["args"] == {"name": "messages"}


def test_the_newest_trace_of_a_folder_is_read_and_written_again(tmp_path):
    assert read(tmp_path) == []
    folder = tmp_path / "plugins/profile/now"
    folder.mkdir(parents=True)
    with gzip.open(folder / "host.trace.json.gz", "wt") as file:
        json.dump({"traceEvents": [*jax(), {}]}, file)  # JAX ends with an empty one
    assert read(tmp_path) == jax()
    older = tmp_path / "plugins/profile/before/host.trace.json.gz"
    older.parent.mkdir()
    older.write_bytes(gzip.compress(b'{"traceEvents": []}'))
    os.utime(older, (1, 1))
    assert read(tmp_path) == jax()
    trace = merge([], {0: jax()}, {0: Fit(0, 0)})
    assert names(trace) == {1: "rank 0 JAX /host:CPU"}
    write(tmp_path / "profile", trace, {"clocks": "one"})
    found = json.loads(gzip.decompress((tmp_path / "profile.json.gz").read_bytes()))
    assert found["traceEvents"] == trace
    assert found["otherData"] == {"clocks": "one"}
