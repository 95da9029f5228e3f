import json
import os
from pathlib import Path

import pytest

from dml.runs import folder as runs
from dml.runs import results
from dml.types import BadInput


def write(path, flags, rows, summary=None):
    with runs.folder(path, flags) as writer:
        for row in rows:
            writer.row(row)
        if summary is not None:
            writer.summary(summary)


def test_what_a_run_wrote_is_read(tmp_path):
    write(tmp_path / "a", {"lr": 0.1}, [{"step": 1, "loss": 2.0}], {"loss": 2.0})
    run = results.read(tmp_path / "a")
    assert run.path == tmp_path / "a"
    assert run.flags == {"lr": 0.1}
    assert run.config["versions"]["python"]
    assert run.summary == {"loss": 2.0}
    assert run.rows == [{"step": 1, "loss": 2.0}]


def test_a_run_that_was_killed_has_no_summary_and_its_whole_rows(tmp_path):
    write(tmp_path, {}, [{"step": 1}, {"step": 2}])
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 3, "lo')
    run = results.read(tmp_path)
    assert run.summary == {}
    assert [row["step"] for row in run.rows] == [1, 2]


def test_run_folders_are_found_at_and_under_paths_once(tmp_path):
    for name in ("b", "a/x", "a/y"):
        write(tmp_path / name, {}, [])
    folders = [tmp_path / name for name in ("a/x", "a/y", "b")]
    assert results.found([tmp_path]) == folders
    assert results.found([tmp_path / "b", tmp_path, tmp_path / "a"]) == folders


@pytest.mark.parametrize(("name", "says"), [("no", "no such folder"), ("", "none")])
def test_a_path_without_runs_is_bad_input(name, says, tmp_path):
    with pytest.raises(BadInput, match=f"at or under .*, got {says}; pass another"):
        results.found([tmp_path / name])


@pytest.mark.parametrize("broken", ["config.json", "summary.json", "metrics.jsonl"])
@pytest.mark.parametrize("content", [b"{broken\n", b"[1, 2]\n", b"\xff\xfe\n"])
def test_what_cannot_be_read_is_named(broken, content, tmp_path):
    write(tmp_path, {}, [{"step": 1}], {"loss": 1.0})
    (tmp_path / broken).write_bytes(content)
    with pytest.raises(BadInput, match=f"{broken}.*fix or delete"):
        results.read(tmp_path)


@pytest.mark.parametrize("piped", ["config.json", "summary.json", "metrics.jsonl"])
def test_a_pipe_is_not_waited_for(piped, tmp_path):
    write(tmp_path, {}, [{"step": 1}], {"loss": 1.0})
    (tmp_path / piped).unlink()
    os.mkfifo(tmp_path / piped)
    with pytest.raises(BadInput, match=f"{piped}, got a pipe"):
        results.read(tmp_path)


def test_flags_that_are_none_are_named(tmp_path):
    Path(tmp_path, "config.json").write_text(json.dumps({"flags": [1]}))
    with pytest.raises(BadInput, match="config.json, got list"):
        results.read(tmp_path)
