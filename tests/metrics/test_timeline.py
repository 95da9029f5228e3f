"""A timeline's JSON, picture, hash and waiting: by hand, and of virtual runs."""

import json

import numpy as np
import pytest

from dml import sim
from dml.metrics.timeline import digest, events, subtract, union, waiting_seconds
from dml.types import Interval, Message, Timeline
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Traced

NETWORK = sim.Uniform(alpha=1e-6, beta=1e-9, gamma=1e-10)


def ring(size, seed=0, length=1000, late=0.0):
    """Trace a virtual ring all-reduce between two phases; rank 1 may come late."""

    def program(comm):
        comm = Traced(comm)
        comm.begin()
        comm.platform.compute(1e-6 + late * (comm.rank == 1))
        comm.add_interval("gradient", 0.0, comm.Wtime())
        start = comm.Wtime()
        buffer = np.random.default_rng([seed, comm.rank]).normal(size=length)
        ALLREDUCE["ring"](comm, buffer)
        comm.add_interval("wire", start, comm.Wtime())
        comm.end()
        return comm.timeline()

    return sim.run(program, size, network=NETWORK)[0]


def some_of(trace, kind):
    return [event for event in trace if event["ph"] == kind]


def test_each_span_is_a_slice_and_each_flow_has_its_end():
    timeline = ring(4)
    trace = json.loads(json.dumps(events(timeline)))
    names = [event["args"] for event in some_of(trace, "M")][::2]
    assert names == [{"name": f"rank {rank}"} for rank in range(4)]
    times = [event["ts"] for event in trace if "ts" in event]
    assert times == sorted(times)
    slices = [(e["tid"], e["name"], e["ts"], e["dur"]) for e in some_of(trace, "X")]
    intervals = [(s.rank, s.name, s.start, s.end - s.start) for s in timeline.intervals]
    for found, want in zip(sorted(slices), sorted(intervals), strict=True):
        assert found[:2] == want[:2]
        assert np.allclose(found[2:], np.array(want[2:]) * 1e6, rtol=0, atol=2e-3)
    starts = {event["id"]: event for event in some_of(trace, "s")}
    ends = {event["id"]: event for event in some_of(trace, "f")}
    assert len(starts) == len(ends) == len(timeline.messages) == 4 * 6
    for number, message in enumerate(timeline.messages):
        start, end = starts[number], ends[number]
        assert (start["tid"], end["tid"]) == (message.source, message.dest)
        assert start["args"] == {"bytes": message.nbytes, "tag": message.tag}
        assert start["ts"] <= end["ts"]
    calls = [event for event in some_of(trace, "X") if event["cat"] == "call"]
    for event in [*starts.values(), *ends.values()]:  # else Perfetto draws no arrow
        assert any(
            call["ts"] <= event["ts"] < call["ts"] + call["dur"]
            for call in calls
            if call["tid"] == event["tid"]
        )


def test_slices_that_begin_together_are_nested_outer_first_and_before_arrows():
    intervals = [Interval(0, "Recv", 0.0, 1e-6), Interval(0, "wire", 0.0, 2e-6)]
    trace = events(Timeline(intervals, [Message(0, 0, 0, 8, 0.0, 1e-6)]))
    found = [(event["ph"], event["name"]) for event in trace if event["ph"] != "M"]
    assert found == [("X", "wire"), ("X", "Recv"), ("s", "message"), ("f", "message")]


def test_a_rank_waits_for_a_message_till_it_is_sent_and_else_for_the_whole_call():
    intervals = [
        Interval(0, "Recv", 0.0, 5.0),  # sent at 3; received when the next call began
        Interval(0, "Sendrecv", 5.0, 6.0),  # sent before it began
        Interval(0, "Send", 6.0, 8.0),  # hands over
        Interval(0, "Barrier", 8.0, 9.0),
        Interval(0, "update", 9.0, 20.0),
        Interval(1, "wait", 1.0, 4.0),
        Interval(1, "Wait", 2.0, 4.5),  # inside, but for half a second
        Interval(1, "wait", 10.0, 13.0),  # but for what travels in Recv
        Interval(1, "Recv", 11.0, 12.5),
        Interval(2, "gradient", 0.0, 1.0),
        Interval(2, "Waitall", 1.0, 11.0),  # the last of two is sent at 10
    ]
    messages = [
        Message(1, 0, 0, 8, sent=3.0, received=5.0),
        Message(2, 0, 0, 8, sent=4.0, received=6.0),
        Message(0, 1, 0, 8, sent=6.0, received=7.0),
        Message(0, 1, 0, 8, sent=10.5, received=12.5),
        Message(0, 2, 0, 8, sent=3.0, received=5.0),
        Message(0, 2, 0, 8, sent=10.0, received=11.0),
    ]
    waited = {0: 4.0, 1: 3.5 + 1.5, 2: 9.0}
    assert waiting_seconds(Timeline(intervals, messages)) == waited


def test_all_wait_for_a_straggler_and_it_for_nobody():
    even, uneven = waiting_seconds(ring(4)), waiting_seconds(ring(4, late=1.0))
    assert max(even.values()) == pytest.approx(0.0, abs=1e-12)
    assert uneven.pop(1) == pytest.approx(0.0, abs=1e-12)
    assert list(uneven.values()) == pytest.approx([1.0] * 3, rel=1e-3)


def test_intervals_are_merged_and_cut():
    parts = [(4.0, 5.0), (0.0, 3.0), (1.0, 2.0), (5.0, 6.0)]
    assert union(parts) == [(0.0, 3.0), (4.0, 6.0)]
    assert union(parts, gap=1.0) == [(0.0, 6.0)]
    holes = [(1.0, 2.0), (1.5, 3.0), (5.0, 6.0), (9.0, 11.0)]
    found = list(subtract([(0.0, 4.0), (5.0, 6.0), (7.0, 8.0), (8.5, 10.0)], holes))
    assert found == [(0.0, 1.0), (3.0, 4.0), (7.0, 8.0), (8.5, 9.0)]
    assert list(subtract([(1.0, 3.0)], [(0.0, 5.0)])) == []
    assert list(subtract([(1.0, 3.0)], [(0.0, 2.0)])) == [(2.0, 3.0)]


def test_a_run_has_one_hash_whatever_its_data_and_another_run_another():
    one = digest(ring(4))
    assert one == digest(ring(4)) == digest(ring(4, seed=1))
    others = {digest(ring(5)), digest(ring(4, length=1001)), digest(ring(4, late=1e-9))}
    assert len(others | {one}) == 4
    interval, message = Interval(0, "Recv", 0.0, 1.0), Message(0, 0, 0, 8, 0.0, 1.0)
    few = ([], []), ([interval], []), ([], [message]), ([interval], [message])
    assert len({digest(Timeline(*each)) for each in few}) == 4
