"""What is written into run folders, and what is read from them."""

import json
import os
import re
from pathlib import Path

import pytest

from dml.runs import exports, folder, results, writers
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
    run = results.read(path)
    assert run == (path, flags, run.config, {"loss": 0.25, "steps": 2}, rows)
    assert run.config["flags"] == flags and run.config["ranks"] == 4
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", run.config["versions"]["python"])
    assert "numpy" in run.config["versions"] and run.config["host"]


@pytest.mark.parametrize("append", (False, True))
def test_a_run_that_is_killed_has_no_summary_and_its_finished_rows(tmp_path, append):
    write(tmp_path, {}, [{"step": 1}], {"loss": 0.25})
    with folder.folder(tmp_path, {}, append) as writer:
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
        with writers.jsonl(rows, append) as a, exports.table(table, append) as b:
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


def test_a_path_is_what_was_asked_for_or_named_by_time(tmp_path):
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
def test_what_cannot_be_read_is_named_and_a_pipe_is_not_waited_for(broken, tmp_path):
    write(tmp_path, {}, [{"step": 1}], {"loss": 1.0})
    for content in (b"{broken\n", b"[1, 2]\n", b"\xff\xfe\n"):
        (tmp_path / broken).write_bytes(content)
        with pytest.raises(BadInput, match=f"{broken}.*fix or delete"):
            results.read(tmp_path)
    (tmp_path / broken).unlink()
    os.mkfifo(tmp_path / broken)
    with pytest.raises(BadInput, match=f"{broken}, got a pipe"):
        results.read(tmp_path)


def test_flags_that_are_none_are_named(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"flags": [1]}))
    with pytest.raises(BadInput, match="config.json, got list"):
        results.read(tmp_path)
