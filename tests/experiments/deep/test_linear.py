import gzip
import json

import linear

from dml import task
from dml.metrics.profile import MARK
from dml.update import dense
from tests.experiments.run_folder import read_rows, read_summary


def run(out, *argv, timeline=0):
    given = [f"--out={out}", "--steps=30", f"--timeline={timeline}"]
    return linear.main(["linear.py", *given, *argv])


def losses(out):
    return [row["loss"] for row in read_rows(out)]


def test_a_run_leaves_its_folder_with_every_flag(tmp_path):
    (summary,) = run(tmp_path, "--optimizer=adam", "--seed=3", timeline=1)
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == ["config.json", "loss.png", "loss.svg"] + [
        *("metrics.jsonl", "summary.json"),
        *("timeline.html", "timeline.json", "timeline.png", "timeline.svg"),
    ]
    flags = json.loads((tmp_path / "config.json").read_text())["flags"]
    assert (flags["optimizer"], flags["seed"], flags["steps"]) == ("adam", 3, 30)
    written = read_summary(tmp_path)
    assert written.items() >= summary.items()
    assert written["energy_kwh"] > 0


def test_the_requested_number_of_steps_is_drawn_after_the_first(tmp_path, capsys):
    argv = ["--simulate=64", "--allreduce=ring", "--steps=4"]
    words = run(tmp_path, *argv, timeline=2)[0]["words_sent"] / 4
    assert f"timeline {tmp_path / 'timeline.svg'}\n" in capsys.readouterr().out
    trace = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    sent = [event for event in trace if event["ph"] == "s"]
    assert len(sent) == 2 * 64 * 126
    mine = [event["args"]["bytes"] for event in sent if event["tid"] == 0]
    assert sum(mine) == 2 * 4 * words
    phases = [e["name"] for e in trace if e["ph"] == "X" and e["cat"] == "phase"]
    # of a gradient: its start, the delay of the rank, its end, no further term
    once = 2 * 64
    want = {"input": once, "gradient": 4 * once, "wire": once, "update": once}
    assert {name: phases.count(name) for name in phases} == want


def times(trace, pid):
    """Return when a process of a trace first begins and last ends something."""
    own = [event for event in trace if event["pid"] == pid and event["ph"] == "X"]
    ends = [event["ts"] + event["dur"] for event in own]
    return min(event["ts"] for event in own), max(ends)


def test_a_profile_has_jax_beside_the_messages_and_changes_no_bit(tmp_path, capsys):
    argv = ["--strategy=serial", "--steps=4"]
    (plain,) = run(tmp_path / "plain", *argv)
    assert not list((tmp_path / "plain").glob("profile*"))
    (summary,) = run(tmp_path, *argv, "--profile", timeline=2)
    assert summary["sha256"] == plain["sha256"]
    assert losses(tmp_path) == losses(tmp_path / "plain")
    assert f"profile {tmp_path / 'profile.json.gz'}  one clock, within " in (
        capsys.readouterr().out
    )
    trace = json.loads(gzip.decompress((tmp_path / "profile.json.gz").read_bytes()))
    named = [e for e in trace["traceEvents"] if e["name"] == "process_name"]
    assert [event["args"]["name"].split(" /")[0] for event in named] == [
        *("messages", "rank 0 JAX"),
    ]
    begins, ends = times(trace["traceEvents"], 0)
    jax_begins, jax_ends = times(trace["traceEvents"], 1)
    marks = [e["ts"] + e["dur"] for e in trace["traceEvents"] if e["name"] == MARK]
    # JAX is traced from a little before the first of the two steps to the last's end
    assert jax_begins < max(marks) < begins + 1e3
    assert begins < (begins + ends) / 2 < jax_ends
    assert jax_ends < ends + 1e6
    drawn = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    assert MARK not in {event["name"] for event in drawn}
    assert [e for e in trace["traceEvents"] if e["pid"] == 0][2:] == drawn


def test_virtual_replicas_compute_an_update_and_an_evaluation_once(
    tmp_path, monkeypatch
):
    calls = []

    def counted(module, name):
        call = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *args: calls.append(name) or call(*args)
        )

    counted(dense, "apply")
    counted(task, "evaluate")
    run(tmp_path, "--simulate=6", "--steps=3", "--evaluate_every=9")
    assert sorted(calls) == ["apply"] * 3 + ["evaluate"]
