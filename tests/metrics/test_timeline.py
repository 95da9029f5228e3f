"""A timeline's JSON, picture, hash and waiting: by hand, and of virtual runs."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest

from dml import sim
from dml.figures import style as figures
from dml.figures.timeline import axis_unit, draw
from dml.metrics.timeline import digest, events, merged, waiting, without, write
from dml.types import Interval, Message, Timeline
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Traced

NETWORK = sim.Uniform(alpha=1e-6, beta=1e-9, gamma=1e-10)
SVG = "{http://www.w3.org/2000/svg}"


def ring(size, seed=0, length=1000, late=0.0):
    """Trace a virtual ring all-reduce between two phases; rank 1 may come late."""

    def program(comm):
        comm = Traced(comm)
        comm.begin()
        comm.platform.compute(1e-6 + late * (comm.rank == 1))
        comm.seen("gradient", 0.0, comm.Wtime())
        start = comm.Wtime()
        buffer = np.random.default_rng([seed, comm.rank]).normal(size=length)
        ALLREDUCE["ring"](comm, buffer)
        comm.seen("wire", start, comm.Wtime())
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


def test_both_ends_of_a_flow_lie_in_slices_of_calls():
    """Else Perfetto binds the arrow to nothing."""
    trace = events(ring(5, length=997))
    for event in some_of(trace, "s") + some_of(trace, "f"):
        assert any(
            one["ts"] <= event["ts"] < one["ts"] + one["dur"]
            for one in some_of(trace, "X")
            if one["tid"] == event["tid"] and one["cat"] == "call"
        )


def test_slices_that_begin_together_are_nested_outer_first():
    intervals = [Interval(0, "Recv", 0.0, 1e-6), Interval(0, "wire", 0.0, 2e-6)]
    assert [e["name"] for e in some_of(events(Timeline(intervals, [])), "X")] == [
        "wire",
        "Recv",
    ]


def test_an_arrow_begins_after_the_slice_that_begins_with_it():
    intervals, messages = (
        [Interval(0, "Send", 0.0, 1e-6)],
        [Message(0, 0, 0, 8, 0.0, 1e-6)],
    )
    trace = [e for e in events(Timeline(intervals, messages)) if e["ph"] != "M"]
    assert [event["ph"] for event in trace] == ["X", "s", "f"]


def test_what_came_when_a_call_began_is_of_the_call_before():
    intervals = [Interval(0, "Recv", 0.0, 5.0), Interval(0, "Recv", 5.0, 6.0)]
    messages = [
        Message(1, 0, 0, 8, sent=5.5, received=6.0),
        Message(2, 0, 0, 8, sent=3.0, received=5.0),
    ]
    assert waiting(Timeline(intervals, messages)) == {0: 3.0 + 0.5}


def test_a_call_that_receives_many_messages_waits_till_the_last_is_sent():
    messages = [Message(1, 0, 0, 8, 2.0, 4.0), Message(1, 0, 0, 8, 9.0, 10.0)]
    assert waiting(Timeline([Interval(0, "Waitall", 0.0, 10.0)], messages)) == {0: 9.0}


def test_a_rank_waits_for_a_message_till_it_is_sent_and_else_for_the_whole_call():
    intervals = [
        Interval(0, "Recv", 0.0, 5.0),  # sent at 3
        Interval(0, "Sendrecv", 5.0, 6.0),  # sent before it began
        Interval(0, "Send", 6.0, 8.0),  # hands over
        Interval(0, "Barrier", 8.0, 9.0),
        Interval(0, "update", 9.0, 20.0),
        Interval(1, "wait", 1.0, 4.0),
        Interval(1, "Wait", 2.0, 4.5),  # inside, but for half a second
        Interval(1, "wait", 10.0, 13.0),  # but for what travels in Recv
        Interval(1, "Recv", 11.0, 12.5),
        Interval(2, "gradient", 0.0, 1.0),
    ]
    messages = [
        Message(1, 0, 0, 8, sent=3.0, received=5.0),
        Message(2, 0, 0, 8, sent=4.0, received=6.0),
        Message(0, 1, 0, 8, sent=6.0, received=7.0),
        Message(0, 1, 0, 8, sent=10.5, received=12.5),
    ]
    assert waiting(Timeline(intervals, messages)) == {0: 4.0, 1: 3.5 + 1.5, 2: 0.0}


def test_all_wait_for_a_straggler_and_it_for_nobody():
    even, uneven = waiting(ring(4)), waiting(ring(4, late=1.0))
    assert max(even.values()) == pytest.approx(0.0, abs=1e-12)
    assert uneven.pop(1) == pytest.approx(0.0, abs=1e-12)
    assert list(uneven.values()) == pytest.approx([1.0] * 3, rel=1e-3)


def test_intervals_merge_where_they_touch_or_nearly():
    parts = [(4.0, 5.0), (0.0, 3.0), (1.0, 2.0), (5.0, 6.0)]
    assert merged(parts) == [(0.0, 3.0), (4.0, 6.0)]
    assert merged(parts, gap=1.0) == [(0.0, 6.0)]


def test_what_is_cut_out_of_intervals_lies_in_none_of_the_holes():
    holes = [(1.0, 2.0), (1.5, 3.0), (5.0, 6.0), (9.0, 11.0)]
    found = list(without([(0.0, 4.0), (5.0, 6.0), (7.0, 8.0), (8.5, 10.0)], holes))
    assert found == [(0.0, 1.0), (3.0, 4.0), (7.0, 8.0), (8.5, 9.0)]
    assert list(without([(1.0, 3.0)], [(0.0, 5.0)])) == []
    assert list(without([(1.0, 3.0)], [(0.0, 2.0)])) == [(2.0, 3.0)]


def test_a_run_has_one_hash_whatever_its_data_and_another_run_another():
    one = digest(ring(4))
    assert one == digest(ring(4)) == digest(ring(4, seed=1))
    others = {digest(ring(5)), digest(ring(4, length=1001)), digest(ring(4, late=1e-9))}
    assert len(others | {one}) == 4
    interval, message = Interval(0, "Recv", 0.0, 1.0), Message(0, 0, 0, 8, 0.0, 1.0)
    few = ([], []), ([interval], []), ([], [message]), ([interval], [message])
    assert len({digest(Timeline(*each)) for each in few}) == 4


@pytest.mark.parametrize("size, late", [(1, 0.0), (2, 1e-6), (64, 1e-5)])
def test_the_picture_has_a_row_a_rank_and_stays_small(tmp_path, size, late):
    timeline = ring(size, late=late)
    write(tmp_path / "timeline", timeline)
    draw(tmp_path / "timeline", timeline)
    svg = tmp_path / "timeline.svg"
    root = ElementTree.parse(svg).getroot()
    assert root.tag == f"{SVG}svg"
    text = svg.read_text()
    for word in ("rank", "µs", "gradient"):
        assert f"<!-- {word} -->" in text
    for word in ("wire", "waiting", "message"):
        assert (f"<!-- {word} -->" in text) == (size > 1)
    assert f"<!-- {size} ranks · {size * 2 * (size - 1):,} messages" in text
    lines = max(path.get("d", "").count("L") for path in root.iter(f"{SVG}path"))
    assert lines >= len(timeline.messages)
    assert svg.stat().st_size < 2 << 20
    assert (tmp_path / "timeline.json").stat().st_size < 5 << 20
    assert (tmp_path / "timeline.png").read_bytes()[1:4] == b"PNG"


STORY = Timeline(
    [
        Interval(0, "update", 10.0, 11.0),
        Interval(0, "wait", 11.0, 13.0),
        Interval(1, "gradient", 10.0, 11.0),
        Interval(1, "gradient", 11.0005, 12.0),  # so near that no gap can be seen
        Interval(1, "reading", 12.0, 12.25),
        Interval(1, "writing", 12.5, 13.0),
    ],
    [Message(1, 0, 0, 2000, sent=12.0, received=13.0)],
)


def test_the_picture_shows_what_the_timeline_tells(monkeypatch):
    kept = []
    monkeypatch.setattr(figures, "save", lambda figure, path: kept.append(figure))
    draw("", STORY)
    (axes,) = kept[0].axes
    boxes, colours = {}, set()
    for patch in axes.patches:
        corners = patch.get_path().vertices.reshape(-1, 5, 2)
        x, y = corners[:, :4].transpose(2, 0, 1)
        assert (x[:, 0] == x[:, 3]).all() and (x[:, 1] == x[:, 2]).all()
        assert (y[:, 0] == y[:, 1]).all() and (y[:, 2] == y[:, 3]).all()
        boxes[patch.get_label()] = [
            (row, *each) for row, each in zip(y.mean(1), x[:, :2].tolist(), strict=True)
        ]
        colours.add(patch.get_facecolor())
    assert boxes == {
        "gradient": [(1, 0, 2)],
        "wire": [(0, 1, 3)],
        "update": [(0, 0, 1)],
        "reading": [(1, 2, 2.25)],
        "writing": [(1, 2.5, 3)],
        "waiting": [(0, 1, 3)],
    }
    assert len(colours) == 6
    (line,) = axes.lines
    assert line.get_xdata()[:2].tolist() == [2, 3]
    assert line.get_ydata()[:2].tolist() == [1 - 0.28, 0.28]  # from bar to bar
    labels = axes.get_legend_handles_labels()[1]
    bars = ["gradient", "wire", "update", "reading", "writing", "waiting"]
    assert labels == [*bars, "message"]
    assert axes.get_xlim() == (0, 3) and axes.get_ylim() == (1.6, -0.6)
    said = "2 ranks · 1 messages · 2 kB · 33.3% of the time waiting"
    assert axes.get_title(loc="left") == said


def test_a_timeline_without_duration_is_drawn(tmp_path):
    draw(tmp_path / "timeline", Timeline([Interval(0, "update", 1.0, 1.0)], []))
    assert "0 messages" in (tmp_path / "timeline.svg").read_text()


@pytest.mark.parametrize(
    "seconds, unit", [(70, "s"), (1, "s"), (0.5, "ms"), (2e-6, "µs"), (0, "ns")]
)
def test_the_axis_has_the_unit_that_fits(seconds, unit):
    assert axis_unit(seconds)[0] == unit
