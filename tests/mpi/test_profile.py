"""Real ranks are profiled, each by itself, and all lie on one clock."""

import gzip
import json


def test_an_annotation_of_any_rank_lies_in_its_phase(mpirun, tmp_path):
    ended = mpirun(2, "profile_main", tmp_path, timeout=90)
    assert (ended.code, ended.err) == (0, "")
    assert "profile.json.gz  one clock, within " in ended.out
    trace = json.loads(gzip.decompress((tmp_path / "profile.json.gz").read_bytes()))
    events = trace["traceEvents"]
    pid = {e["args"]["name"]: e["pid"] for e in events if e["name"] == "process_name"}
    all_of = [e for e in events if e["ph"] == "X" and e["name"] == "gradient"]
    for rank in range(2):
        host = next(pid[name] for name in pid if name.startswith(f"rank {rank} JAX"))
        phases = [e for e in all_of if (e["pid"], e["tid"]) == (0, rank)]
        inner = [e for e in all_of if e["pid"] == host]
        assert len(phases) == len(inner) == 2
        for phase, annotation in zip(phases, inner, strict=True):
            # a millisecond: a rank may be put to sleep while clocks are compared
            late = annotation["ts"] - phase["ts"]
            assert -1e3 < late < phase["dur"]
            assert annotation["dur"] < phase["dur"]
            assert late + annotation["dur"] < phase["dur"] + 1e3
