"""apex.py: four methods until a return is reached."""

import apex
import pytest
from studies.apex import runs
from studies.rl.settings import Settings

from dml.environments.named import find
from tests.experiments.run_folder import check_folder, read_rows

REPLAY = {"warmup": 100, "batch": 16}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    settings = Settings(copies=2, length=8, widths=(8,), replay=REPLAY)
    monkeypatch.setitem(runs.REPLAY, "catch", settings)


def test_every_method_has_the_updates_of_each_seed(tmp_path, undrawn):
    flags = "--updates=40", "--every=20", "--seeds=1", "--processes=1"
    summary = apex.main(["apex.py", f"--out={tmp_path}", *flags])
    check_folder(tmp_path, summary)
    rows = read_rows(tmp_path)
    assert [row["method"] for row in rows] == list(runs.METHODS)
    assert all(row["seeds"] == len(row["updates_by_seed"]) == 1 for row in rows)
    assert all(row["updates_by_seed"] == [row["updates"]] for row in rows)


def test_medians_are_over_all_seeds():
    found = [{"method": "apex", "updates": n, "frames": n} for n in (30, None, 10)]
    row = runs.row(found)
    assert (row["updates"], row["reached"]) == (30, 2)
    assert runs.row([*found, found[1]])["updates"] is None


def test_an_update_of_fewer_actors_has_fewer_transitions(monkeypatch):
    monkeypatch.setattr(runs, "find", lambda name: find(name)._replace(solved=-1.0))
    task = runs.default_task("catch", 400, 400)
    frames = [
        runs.train(task, runs.Cell(method, 0))["frames"]
        for method in ("apex", "fewer_actors")
    ]
    # 6400 samples, 8 or 24 for each transition, after 100 transitions
    assert 900 < frames[0] < 1300 and 360 < frames[1] < 600
