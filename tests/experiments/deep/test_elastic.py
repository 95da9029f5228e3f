"""Elastic runs of a command: files, bits and bad input."""

import json
from types import SimpleNamespace

import pytest
import vision
from lab import flags
from studies.deep.following import write_recoveries
from studies.deep.requests import Requests, requested_workers
from studies.elastic.real import ElasticPlan

from dml.runs import results
from dml.types import BadInput
from dml.wire.recovery.members import Recovery

FLAGS = ["--data=digits", "--model=mlp", "--batch=16", "--steps=6"]
FLAGS += ["--reduce=order_free", "--shards=4"]


def see(path, *flags):
    return vision.main(["vision.py", *FLAGS, *flags, f"--out={path}"])


def rows(path, name="metrics.jsonl"):
    return [json.loads(line) for line in (path / name).read_text().splitlines()]


def test_deaths_of_worker_0_and_of_others_change_neither_rows_nor_parameters(tmp_path):
    see(tmp_path / "plain", "--simulate=3")
    plain = json.loads((tmp_path / "plain" / "summary.json").read_text())
    losses = [(row["step"], row["loss"]) for row in rows(tmp_path / "plain")]
    elastic = ["--simulate=5", "--elastic", "--spares=2", "--check_every=1"]
    see(tmp_path / "calm", *elastic)
    seconds = sum(row["seconds"] for row in rows(tmp_path / "calm"))
    for n, share in enumerate((0.1, 0.4, 0.7)):
        path = tmp_path / str(n)
        time = share * seconds
        see(path, *elastic, f"--events=die:0@{time!r};die:2@{1.2 * time!r}")
        assert [(row["step"], row["loss"]) for row in rows(path)] == losses
        summary = json.loads((path / "summary.json").read_text())
        assert summary["params_sha256"] == plain["params_sha256"]
        assert summary["accuracy"] == plain["accuracy"]
        recoveries = rows(path, "recoveries.jsonl")
        assert sum(row["deaths"] for row in recoveries) == 2
        for row in recoveries:
            assert row["noticed"] <= row["formed"] <= row["committed"]


def test_an_elastic_run_resumes_from_its_checkpoint(tmp_path):
    see(tmp_path / "plain", "--simulate=3")
    see(tmp_path / "first", "--simulate=3", "--elastic", "--save_every=1e-9")
    folder = tmp_path / "first"
    (folder / "summary.json").unlink()
    (folder / "checkpoints" / "step-6.npz").write_bytes(b"")  # the one before is used
    see(folder, "--simulate=2", "--elastic", f"--resume={folder}")
    digests = {
        json.loads((path / "summary.json").read_text())["params_sha256"]
        for path in (tmp_path / "plain", folder)
    }
    assert len(digests) == 1
    assert [row["step"] for row in rows(folder)] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    "flags, text",
    (
        (
            ["--strategy=local", "--reduce=exact", "--shards=0"],
            "--strategy=synchronous",
        ),
        (["--reduce=power_sgd:2", "--shards=0"], "--reduce=exact or order_free"),
        (["--spares=2"], "expected 1 to 2 workers of 2 ranks, got 0"),
        (["--shards=1"], "at least one logical shard for each of 2 ranks"),
        (["--timeline=3"], "no --timeline"),
    ),
)
def test_flags_that_do_not_fit_are_refused(tmp_path, flags, text):
    with pytest.raises(BadInput, match=text):
        see(tmp_path, "--simulate=2", "--elastic", *flags)


def test_a_stopped_run_saves_and_prints_how_to_resume(tmp_path, monkeypatch):
    requests = iter([(False, 0)] * 4)
    monkeypatch.setattr(Requests, "__call__", lambda self: next(requests, (True, 0)))
    text = f"stopped after update 3 of 6; .* --resume={tmp_path}"
    with pytest.raises(flags.Stopped, match=text):
        see(tmp_path, "--simulate=3", "--elastic", "--spares=1")
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == [
        "step-3.npz"
    ]
    assert results.folder_status(tmp_path) == "interrupted"


@pytest.mark.parametrize(
    ("content", "workers"),
    ((b"6\n", 6), (b"0", 0), (b"-2", 0), (b"", 0), (b"six", 0), (b"\xff", 0))
    + ((b"9" * 5000, 0), (None, 0)),
)
def test_the_requested_number_of_workers_is_a_number_or_no_request(
    tmp_path, content, workers
):
    file = tmp_path / "workers"
    file.mkdir() if content is None else file.write_bytes(content)
    assert requested_workers(file) == workers
    assert requested_workers(tmp_path / "none") == 0


def test_real_ranks_without_fault_tolerance_are_refused(tmp_path):
    with pytest.raises(BadInput, match="expected mpirun --with-ft ulfm"):
        see(tmp_path, "--elastic")


def test_the_death_of_all_ranks_is_an_error(tmp_path):
    with pytest.raises(BadInput, match="expected a rank that lives until the end"):
        see(tmp_path, "--simulate=2", "--elastic", "--events=die:0@0;die:1@0")


def test_spares_without_elastic_are_refused(tmp_path):
    with pytest.raises(BadInput, match="--elastic with --spares=1"):
        see(tmp_path, "--simulate=2", "--spares=1")


def test_every_recovery_since_the_last_update_is_written(tmp_path):
    comm = SimpleNamespace(Wtime=lambda: 5.0, platform=SimpleNamespace(virtual=True))
    recoveries = [Recovery(time, 0.5, 3, 1) for time in (0.0, 1.0, 2.0)]
    members = SimpleNamespace(recoveries=recoveries, comm=comm)
    write_recoveries(tmp_path / "recoveries.jsonl", members, 1, 7)
    rows = results.read_rows(tmp_path / "recoveries.jsonl")
    assert [row["noticed"] for row in rows] == [1.0, 2.0]
    assert [row["formed"] for row in rows] == [1.5, 2.5]
    assert {(row["step"], row["committed"]) for row in rows} == {(7, 5.0)}


@pytest.mark.parametrize(
    ("ranks", "spares", "kills", "most"), [(9, 1, 5, 5), (9, 1, 99, 8), (4, 0, 99, 3)]
)
def test_workers_are_killed_until_one_rank_is_left(ranks, spares, kills, most):
    assert ElasticPlan(ranks, spares, kills, 1.0, 0).most_kills == most
