import json
import re
from pathlib import Path

import pytest

from dml.runs import folder as runs
from dml.types import BadInput


def test_a_run_folder_holds_config_metrics_and_summary(tmp_path):
    flags = {"seed": 3, "out": None}
    with runs.folder(tmp_path / "a" / "b", flags, ranks=4) as writer:
        config = json.loads((tmp_path / "a/b/config.json").read_text())
        writer.row({"step": 1, "loss": 0.5})
        writer.row({"step": 2, "loss": 0.25})
        writer.summary({"loss": 0.25, "steps": 2})
    assert config["flags"] == flags
    assert config["ranks"] == 4
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", config["versions"]["python"])
    assert "numpy" in config["versions"]
    assert config["host"]
    rows = (tmp_path / "a/b/metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == [1, 2]
    summary = json.loads((tmp_path / "a/b/summary.json").read_text())
    assert summary == {"loss": 0.25, "steps": 2}


def test_a_run_that_is_killed_leaves_no_summary_of_one_before(tmp_path):
    for append in (False, True):
        with runs.folder(tmp_path, {}) as writer:
            writer.summary({"loss": 0.25})
        with runs.folder(tmp_path, {}, append):
            assert not (tmp_path / "summary.json").exists()


def test_the_commit_is_a_hash_and_none_outside_git(tmp_path, monkeypatch):
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", runs.commit() or "0" * 40)
    monkeypatch.setattr(runs, "__file__", str(tmp_path / "runs.py"))
    assert runs.commit() is None
    monkeypatch.setenv("PATH", "")
    assert runs.commit() is None


def test_a_path_is_what_was_asked_for_or_named_by_time(tmp_path):
    assert runs.path("here", "linear") == Path("here")
    default = str(runs.path(None, "linear"))
    assert re.fullmatch(r"runs/linear/\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d+Z", default)


def test_a_file_in_the_way_is_bad_input(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(BadInput, match="expected a folder .*file.*; pass --out="),
        runs.folder(tmp_path / "file", {}),
    ):
        pass
