"""Real ranks are traced, profiled each by itself on one clock, and metered."""

import gzip
import json


def test_real_ranks_are_traced_profiled_and_metered(mpirun, tmp_path):
    ended = mpirun(2, "metrics_main", tmp_path, timeout=90)
    assert (ended.code, ended.err) == (0, "")
    *_, profiled, together, apart = ended.out.splitlines()
    assert "profile.json.gz  one clock, within " in profiled
    # CPU seconds of each rank count, and the GPUs of each host once
    source = "CPU time x 10 W (estimated) and NVML"
    assert together == f"{10 * (1 + 2) + 5:.3f} J by {source}"
    assert apart == f"{10 * (1 + 2) + 2 * 5:.3f} J by {source}"

    trace = json.loads((tmp_path / "ring.json").read_text())
    assert {event["tid"] for event in trace["traceEvents"]} == {0, 1}
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
