"""Real ranks write the timeline that virtual ones write."""

import json


def test_real_ranks_are_traced_and_drawn(mpirun, tmp_path):
    ended = mpirun(2, "timeline_main", tmp_path / "timeline", timeout=60)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == "2 ranks traced\n"
    assert (tmp_path / "timeline.svg").read_text().startswith("<?xml")
    trace = json.loads((tmp_path / "timeline.json").read_text())
    assert {event["tid"] for event in trace["traceEvents"]} == {0, 1}
