"""a3c.py: virtual workers play episodes until a return is reached."""

import a3c
import pytest
from studies.a3c import runs
from studies.rl.settings import Settings

from tests.experiments.run_folder import check_folder, read_rows

SMALL = ["--environment=catch", "--seeds=1", "--processes=1"]


def run(out, *argv):
    summary = a3c.main(["a3c.py", f"--out={out}", *SMALL, *argv])
    return summary, read_rows(out)


def test_more_workers_take_less_virtual_time(tmp_path, undrawn):
    target = "--target=-2"  # of the first evaluation
    summary, rows = run(tmp_path, "--workers=1,4", target, "--updates=64")
    check_folder(tmp_path, summary)
    one, four = rows
    assert (one["workers"], four["workers"]) == (1, 4)
    assert one["updates"] == four["updates"] == runs.UPDATES
    assert one["staleness_max"] == 0 < four["staleness_max"]
    assert one["frames"] >= 16 * 4 * 9  # 16 minibatches of 4 episodes of 9 steps
    assert one["seconds"] == pytest.approx(16 * 36 * runs.FRAME_SECONDS, rel=0.05)
    assert four["seconds"] == pytest.approx(one["seconds"] / 4, rel=0.3)


def test_a_return_that_is_not_reached_is_none():
    settings = Settings(copies=4, widths=(64, 64))
    task = runs.Task("catch", settings, "async", 2.0, 32)
    row = runs.train(task, runs.Cell(2, 0))
    assert row["seconds"] is None and row["frames"] is None
    assert runs.row([row])["seconds"] is None


def test_a_run_without_the_return_has_no_figure(tmp_path, capsys):
    summary, (row,) = run(tmp_path, "--workers=1", "--target=2", "--updates=16")
    assert row["seconds"] is None and summary["workers_1_frames"] is None
    assert not (tmp_path / "workers.svg").exists()
