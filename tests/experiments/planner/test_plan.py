"""The command plan.py: its answers, its page, and its judgement of published runs."""

import json
import re

import plan
import pytest
from studies.plan.validation import DATA

from dml.types import BadInput
from tests.experiments.run_folder import check_folder, read_rows, read_summary

SMALL = ["--model=llama2_7b", "--devices=16", "--batch=64"]


def run(out, *argv):
    return plan.main(["plan.py", f"--out={out}", *argv])


def test_an_answer_with_its_page_and_figure(tmp_path, capsys):
    summary = run(tmp_path, *SMALL, "--execute", "--tokens=1e9")
    check_folder(tmp_path, summary, "plan.html", "plan.svg")
    rows = read_rows(tmp_path)
    parts = [row for row in rows if row["table"] == "parts"]
    assert sum(row["seconds"] for row in parts) == pytest.approx(summary["seconds"])
    assert abs(parts[-1]["seconds"]) < 1e-12 and parts[-1]["part"] == "remainder"
    meshes = [row for row in rows if row["table"] == "meshes"]
    assert meshes[0]["seconds"] == summary["seconds"]
    assert len({row["mesh"] for row in meshes}) == len(meshes) > 2
    steps = 1e9 / (64 * 4096)
    assert summary["days"] == pytest.approx(steps * summary["seconds"] / 86400)
    executed = [row for row in rows if row["table"] == "executed"]
    assert [row["over_plan"] > 1 for row in executed[1:]] == [True, True]
    text = capsys.readouterr().out
    assert summary["mesh"] in text and "80 % interval" in " ".join(text.split())


def test_the_page_holds_its_data_and_loads_nothing(tmp_path):
    summary = run(tmp_path, *SMALL)
    text = (tmp_path / "plan.html").read_text()
    assert not re.findall(r"(?:src|href)=|https?://", text)
    data = json.loads(re.search(r'type="application/json">(.*?)</script>', text)[1])
    middle = data["tables"][2][2]
    best = min(middle, key=lambda row: sum(row["parts"].values()))
    assert best["mesh"] == summary["mesh"]
    assert sum(best["parts"].values()) == pytest.approx(summary["seconds"], rel=1e-3)
    assert data["devices"] == [4, 8, 16, 32, 64]
    assert {row["remat"] for row in middle} <= {"none", "selective", "full"}


def test_one_mesh_is_explained(tmp_path):
    mesh = "tensor:4,stage:2"
    summary = run(tmp_path, *SMALL, f"--mesh={mesh}", "--nopage")
    assert summary["mesh"] == "tensor:4,stage:2,data:2"
    slow = run(tmp_path / "slow", *SMALL, f"--mesh={mesh}", "--nopage", "--network=1")
    assert slow["seconds"] > 2 * summary["seconds"]
    assert slow["limit"] in ("data", "boundary")


def test_a_device_without_published_runs_has_a_wide_interval(tmp_path):
    known = run(tmp_path / "a", *SMALL, "--nopage")
    unknown = run(tmp_path / "b", *SMALL, "--nopage", "--device=mi325x")
    assert known["fitted_device"] and not unknown["fitted_device"]
    assert (
        unknown["seconds_low"] / unknown["seconds"]
        < known["seconds_low"] / known["seconds"]
    )


def test_published_runs_are_judged(tmp_path):
    summary = run(tmp_path, "--validate=published")
    check_folder(tmp_path, summary, "plan.svg")
    saved = read_summary(tmp_path)
    keys = {"rows", "refused", "median_error", "p90_error"}
    keys |= {"null_median_error", "null_p90_error"}
    assert all(keys <= row.keys() for row in saved["sources"].values())
    assert all(
        {"kendall_tau", "regret"} <= row.keys() for row in saved["sweeps"].values()
    )
    assert keys | {"memory_median_error", "oom_found", "fits_refused"} <= saved.keys()
    assert 0.7 < saved["coverage_80"] < 1
    assert saved["sources"]["VIA-Research/vTrain"]["rows"] == 18
    assert len(saved["sweeps"]) == 4


def test_another_file_is_judged(tmp_path):
    lines = DATA.read_text().splitlines()
    (tmp_path / "few.csv").write_text("\n".join(lines[:12]) + "\n")
    summary = run(tmp_path / "out", f"--validate={tmp_path / 'few.csv'}")
    assert summary["rows"] == 6
    (tmp_path / "none.csv").write_text(lines[0] + "\n")
    with pytest.raises(BadInput, match="the file is empty"):
        run(tmp_path / "no", f"--validate={tmp_path / 'none.csv'}")
