import numpy as np
import pytest
import softsync
from studies.server import softsync_report

from tests.experiments.run_folder import read_rows
from tests.experiments.server import small_images

SMALL = ["--clocks=20", "--batch=120", "--snapshots=10", "--n=1,3,6"]
LATE = "--law=shifted_exponential:1,10"


@pytest.fixture(autouse=True)
def small(monkeypatch):
    small_images.put(monkeypatch)


def run(out, *argv):
    given = [f"--out={out}", *SMALL, "--simulate=7", *argv]
    summary = softsync.main(["softsync.py", *given])[0]
    return summary, read_rows(out)


def test_staleness_is_about_n_and_hardly_ever_above_2n(tmp_path, undrawn):
    summary, rows = run(tmp_path, "--lr=0.1", LATE, "--clocks=60", "--snapshots=60")
    for row in rows[1:]:
        n = int(row["strategy"].split("-")[0])
        stale = np.array(row["staleness"])
        assert row["updates"] == stale.sum() // (6 // n) == 60 * n
        assert 0.6 * n < row["staleness_mean"] < 1.1 * n
        assert row["staleness_mean"] == pytest.approx(
            stale @ np.arange(len(stale)) / stale.sum()
        )
        assert row["beyond"] == stale[2 * n + 1 :].sum() / stale.sum() < 0.02
    assert summary["6_softsync_fixed_tau"] == rows[-1]["staleness_mean"]


def test_a_fixed_rate_is_lost_where_a_divided_one_is_not(tmp_path, undrawn):
    summary, rows = run(tmp_path, "--lr=4", "--n=6", LATE)
    fixed, damped = rows[1:]
    assert damped["objective"] < 0.5 * fixed["objective"]
    assert summary["6_softsync_fixed_error"] == fixed["error"]
    assert summary["6_softsync_scaled_error"] == damped["error"]


def test_hard_sync_finds_the_lowest_rate_that_is_as_good_as_the_best(tmp_path, undrawn):
    summary, rows = run(tmp_path, "--lr=0.001,0.5,0.6", "--n=1")
    assert [row["rate"] for row in rows] == [0.001, 0.5, 0.6, 0.5, 0.5]
    assert summary["alpha0"] == 0.5
    assert rows[0]["error"] > rows[1]["error"] + softsync_report.POINT
    assert rows[1]["error"] <= rows[2]["error"] + softsync_report.POINT
    assert summary["hard_sync_error"] == rows[1]["error"]
