"""What is written into run folders, and what is read from them."""

import errno
import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from dml.runs import exports, folder, results
from dml.runs.rows import jsonl
from dml.types import BadInput


def write(path, flags=None, rows=(), summary=None, **options):
    with folder.folder(path, flags or {}, **options) as writer:
        for row in rows:
            writer.row(row)
        if summary is not None:
            writer.summary(summary)


def test_a_run_folder_holds_config_metrics_and_summary(tmp_path):
    path, flags = tmp_path / "a" / "b", {"seed": 3, "out": None}
    rows = [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}]
    write(path, flags, rows, {"loss": 0.25, "steps": 2}, ranks=4)
    run, summary = results.read(path), {"status": "done", "loss": 0.25, "steps": 2}
    assert run == (path, flags, run.config, summary, rows)
    assert run.config["flags"] == flags and run.config["ranks"] == 4
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", run.config["versions"]["python"])
    assert "numpy" in run.config["versions"] and run.config["host"]


@pytest.mark.parametrize("append", (False, True))
def test_a_run_that_is_killed_has_no_summary_and_its_finished_rows(tmp_path, append):
    write(tmp_path, {}, [{"step": 1}], {"loss": 0.25})
    with folder.folder(tmp_path, {}, append, overwrite=not append) as writer:
        assert not (tmp_path / "summary.json").exists()
        writer.row({"step": 2})
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 3, "lo')
    run = results.read(tmp_path)
    assert run.summary == {}
    assert [row["step"] for row in run.rows] == ([1, 2] if append else [2])


@pytest.mark.parametrize("unit", ("step", "epoch"))
def test_the_first_row_of_a_resumed_run_replaces_the_rows_that_it_repeats(
    tmp_path, unit
):
    rows, table = tmp_path / "metrics.jsonl", tmp_path / "metrics.csv"
    for first, append in ((1, False), (3, True), (6, True)):
        with jsonl(rows, append) as a, exports.table(table, append) as b:
            for number in range(first, first + 4):
                for writer in (a, b):
                    writer.row({unit: number, "loss": first})
        with open(rows, "a") as file:
            file.write(f'{{"{unit}": {first + 4}, "lo')  # the run is killed
    expected = [(1, 1), (2, 1), (3, 3), (4, 3), (5, 3), (6, 6), (7, 6), (8, 6), (9, 6)]
    assert [(row[unit], row["loss"]) for row in results.read_rows(rows)] == expected
    in_table = [(int(row[unit]), int(row["loss"])) for row in exports.read(table)[1]]
    assert in_table == expected


def test_the_commit_is_a_hash_and_none_outside_git(tmp_path, monkeypatch):
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", folder.commit() or "0" * 40)
    monkeypatch.setattr(folder, "__file__", str(tmp_path / "runs.py"))
    assert folder.commit() is None
    monkeypatch.setenv("PATH", "")
    assert folder.commit() is None


def test_a_path_is_the_requested_one_or_named_by_time(tmp_path):
    assert folder.path("here", "linear") == Path("here")
    default = str(folder.path(None, "linear"))
    assert re.fullmatch(r"runs/linear/\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d+Z", default)


def test_run_folders_are_found_at_and_under_paths_once(tmp_path):
    folders = [tmp_path / name for name in ("a/x", "a/y", "b")]
    for path in reversed(folders):
        write(path)
    assert results.find_folders([tmp_path]) == folders
    assert results.find_folders([tmp_path / "b", tmp_path, tmp_path / "a"]) == folders


def test_a_file_in_the_way_or_a_path_without_runs_is_bad_input(tmp_path):
    for name, got in [("no", "no such folder"), ("", "none")]:
        with pytest.raises(BadInput, match=f"at or under .*, got {got}; pass another"):
            results.find_folders([tmp_path / name])
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="expected a folder .*file.*; pass --out="):
        write(tmp_path / "file")


@pytest.mark.parametrize("broken", ["config.json", "summary.json", "metrics.jsonl"])
def test_what_cannot_be_read_is_named_and_a_pipe_is_not_waited_for(
    broken, tmp_path, monkeypatch
):
    write(tmp_path, {}, [{"step": 1}], {"loss": 1.0})
    for content in (b"{broken\n", b"[1, 2]\n", b"\xff\xfe\n"):
        (tmp_path / broken).write_bytes(content)
        with pytest.raises(BadInput, match=f"{broken}.*fix or delete"):
            results.read(tmp_path)
    (tmp_path / broken).unlink()
    os.mkfifo(tmp_path / broken)
    with pytest.raises(BadInput, match=f"{broken}, got a pipe"):
        results.read(tmp_path)
    (tmp_path / broken).unlink()
    (tmp_path / broken).symlink_to("/dev/zero")
    with pytest.raises(BadInput, match=f"{broken}, got a pipe, device"):
        results.read(tmp_path)
    monkeypatch.setattr(results, "MAX_BYTES", 1 << 20)
    (tmp_path / broken).unlink()
    with open(tmp_path / broken, "wb") as file:
        file.truncate(1 << 40)  # without blocks on the disk
    with pytest.raises(BadInput, match=f"{broken}, got more than 1 MB"):
        results.read(tmp_path)


def test_flags_that_are_none_are_named(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"flags": [1]}))
    with pytest.raises(BadInput, match="config.json, got list"):
        results.read(tmp_path)


LOCK = """
import sys
from pathlib import Path
from dml.runs import folder
with folder.folder(Path(sys.argv[1]), {"seed": 1}) as writer:
    writer.row({"step": 1})
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_a_second_run_in_a_folder_is_refused_until_the_first_ends_or_is_killed(
    tmp_path,
):
    first = subprocess.Popen(
        [sys.executable, "-c", LOCK, tmp_path],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert first.stdout.readline() == "locked\n"
    for options in ({}, {"append": True}, {"overwrite": True}):
        with pytest.raises(BadInput, match="expected one run at a time in .*, got a"):
            write(tmp_path, {"seed": 2}, [{"step": 7}], {}, **options)
    run = results.read(tmp_path)
    assert (run.flags, run.rows) == ({"seed": 1}, [{"step": 1}])
    first.kill()
    first.communicate()
    write(tmp_path, {"seed": 3}, append=True)  # the lock ends with its process
    assert results.read(tmp_path).flags == {"seed": 3}


def test_a_file_system_without_locks_has_runs(tmp_path, monkeypatch):
    def flock(*arguments):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(folder.fcntl, "flock", flock)
    write(tmp_path, {}, [{"step": 1}], {})
    assert results.folder_status(tmp_path) == "done"


def test_a_folder_with_a_run_is_refused_or_its_files_are_replaced(tmp_path):
    names = ["metrics.csv", "recoveries.jsonl", "events.out.tfevents.1.host"]
    names += ["checkpoints/step-3.npz", "checkpoints/epoch-1.npz"]
    foreign = ["notes.txt", "checkpoints/mine.npz", "output.txt"]
    (tmp_path / "checkpoints").mkdir()
    for name in foreign:
        (tmp_path / name).write_text("mine")
    write(tmp_path, {"a": 1}, [{"step": 1}], {"loss": 1})  # the folder has no run
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(BadInput, match="run that is done; pass --overwrite to replace"):
        write(tmp_path, {"a": 2})
    assert results.read(tmp_path).flags == {"a": 1}
    write(tmp_path, {"a": 2}, [{"step": 9}], {"loss": 2}, overwrite=True)
    run = results.read(tmp_path)
    assert (run.flags, run.rows) == ({"a": 2}, [{"step": 9}])
    assert not any((tmp_path / name).exists() for name in names)
    assert all((tmp_path / name).read_text() == "mine" for name in foreign)


def test_the_status_of_a_run_is_in_its_summary(tmp_path):
    def status(path, error=None, **summary):
        with (
            suppress(Exception, KeyboardInterrupt),
            folder.folder(tmp_path / path, {}) as writer,
        ):
            if summary:
                writer.summary(summary)
            if error:
                raise error
        return results.folder_status(tmp_path / path)

    assert status("a", loss=1) == "done"
    assert status("b", loss=1, status="interrupted") == "interrupted"
    assert status("c", FloatingPointError("expected a finite\nloss")) == "failed"
    assert results.read(tmp_path / "c").summary["error"] == "expected a finite loss"
    assert status("d", KeyboardInterrupt()) == "interrupted"
    assert status("e", KeyError("late"), loss=1) == "done"  # results are not replaced
    assert status("f") == "not ended"
    (tmp_path / "f" / "summary.json").write_text('{"loss": 1}')
    assert results.folder_status(tmp_path / "f") == "done"  # of an earlier version


@pytest.mark.parametrize(
    "line, problem",
    [
        ("5", "expected names and values in .*metrics.jsonl, got int"),
        ('{"epoch": "x"}', "expected a whole number as epoch in line 2 of .*, got 'x'"),
        ('{"step": 1.5}', "expected a whole number as step in line 2 of .*, got 1.5"),
        ('{"step": [', "expected JSON in .*metrics.jsonl"),
        ("\xff", "expected JSON in .*metrics.jsonl"),
    ],
)
def test_a_resumed_run_refuses_rows_that_are_not_those_of_a_run(
    tmp_path, line, problem
):
    write(tmp_path, {}, [{"step": 1}])
    with open(tmp_path / "metrics.jsonl", "a", encoding="latin-1") as file:
        file.write(f"{line}\n")
    with pytest.raises(BadInput, match=problem):
        write(tmp_path, {}, append=True)


def test_a_resumed_run_refuses_a_table_with_other_numbers(tmp_path):
    (tmp_path / "metrics.csv").write_text("step,loss\nx,1\n")
    with (
        exports.table(tmp_path / "metrics.csv", append=True) as writer,
        pytest.raises(BadInput, match="expected a whole number as step .* got 'x'"),
    ):
        writer.row({"step": 2, "loss": 1})
