"""Steps on this machine: rates, meshes, and the prediction of what was not fitted."""

import os
import subprocess
import sys

import numpy as np
import plan
import pytest
from lab import started
from studies.plan import here

from dml.planner import fitting
from dml.planner import runs as columns
from dml.planner.physics import Constants
from dml.planner.runs import Mesh
from dml.wire.mesh.axes import mesh_shapes
from tests.experiments.run_folder import check_folder, read_rows

RATES = {
    count: {"peak": 6e10, "bandwidth": 1e10, "alpha": 1e-4, "link": 2e9}
    for count in (1, 2, 4)
}
SMALL = here.Setting(1, 32, 16, batch=4, microbatches=2, heads=4)


def measured(seconds):
    """Return a row for each mesh and setting, with seconds(row, index)."""
    found = here.Here(RATES, [
        here.Measured(
            count, size, Mesh(**axes, micro_batch=4 / axes["data"]), 512, 1.0
        )
        for count in RATES
        for size in here.SETTINGS
        for axes in mesh_shapes(count)
    ])  # fmt: skip
    table = columns.stack(
        [here.to_runs(row, RATES[row.ranks]) for row in found.measured]
    )
    parts = np.stack(fitting.halves(table, here.physics(found)), 1)
    rows = [
        row._replace(seconds=seconds(pair, row))
        for row, pair in zip(found.measured, parts, strict=True)
    ]
    return here.Here(RATES, rows)


def test_two_constants_are_found_from_half_of_the_rows():
    pair = np.array([1.3, 2.1])
    found = measured(lambda parts, row: float(parts @ pair))
    predicted, constants = here.predict(found)
    assert constants == pytest.approx(Constants(*pair), rel=0.02)
    assert 0.3 < np.mean([row.fitted for row in found.measured]) < 0.7
    known = [row.seconds for row in found.measured]
    assert predicted == pytest.approx(known, rel=0.02)
    wrong = measured(lambda p, row: float(p @ pair) * (1 if row.fitted else 1.5))
    summary = here.totals(wrong, {"steps": list(here.steps(wrong, {}))})
    assert summary["within_10_percent"] == 0
    assert summary["median_error"] == pytest.approx(1 / 3, abs=0.02)


def test_ranks_in_excess_of_the_cores_share_them(monkeypatch):
    monkeypatch.setattr(here, "cores", lambda: 2)
    row = here.Measured(4, here.SETTINGS[0], Mesh(stage=4), 512, 1.0)
    assert here.to_runs(row, RATES[4]).sharing == 2
    assert here.to_runs(row._replace(ranks=1), RATES[1]).sharing == 1


def test_a_pinned_rank_has_one_core(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import os, sys; print(os.sched_getaffinity(0), *sys.argv[1:])")
    cores = sorted(os.sched_getaffinity(0))
    for rank in range(len(cores) + 1):
        output = subprocess.run(
            [sys.executable, *started.python(pinned=True)[-1:], str(script), "--a=1"],
            env=os.environ | {"PMI_RANK": str(rank)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert output == f"{ {cores[rank % len(cores)]} } --a=1\n"


def test_steps_of_two_ranks_are_measured_and_predicted(tmp_path, monkeypatch):
    monkeypatch.setattr(here, "SETTINGS", (SMALL,))
    summary = plan.main(["plan.py", f"--out={tmp_path}", "--here=2"])
    check_folder(tmp_path, summary, "plan.svg")
    rows = read_rows(tmp_path)
    (rates,) = [row for row in rows if row["table"] == "rates"]
    assert all(rates[name] > 0 for name in ("peak", "bandwidth", "link"))
    steps = [row for row in rows if row["table"] == "steps"]
    assert [row["mesh"] for row in steps] == ["data:2", "tensor:2", "stage:2"]
    assert all(row["seconds"] > 0 and row["predicted"] > 0 for row in steps)
    assert summary["rows"] == 3
