import downpour
import pytest
from studies.server import downpour_report

from tests.experiments.run_folder import read_rows, read_summary
from tests.experiments.server import small_images

SMALL = ["--clocks=12", "--batch=120", "--lr=0.5", "--adagrad_lr=0.1", "--target=0.7"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    small_images.put(monkeypatch)


def run(out, *argv):
    given = [f"--out={out}", *SMALL, "--simulate=6", "--servers=2", *argv]
    summary = downpour.main(["downpour.py", *given])[0]
    return summary, {(row["strategy"], row["rate"]): row for row in read_rows(out)}


def test_downpour_waits_for_nobody_and_is_stale(tmp_path, undrawn):
    summary, rows = run(tmp_path)
    free, in_step = rows["Downpour SGD", 0.5], rows["sync SGD", 0.5]
    assert free["updates"] == 4 * 12 and in_step["updates"] == 12
    assert in_step["idle_share"] > 0.2 > 0.01 > free["idle_share"]
    assert free["staleness_mean"] > 1 > in_step["staleness_mean"] == 0
    assert free["seconds"] < in_step["seconds"]
    assert free["seconds_to_target"] < in_step["seconds_to_target"]
    assert rows["sync AdaGrad", 0.1]["objective"] != in_step["objective"]
    assert summary["downpour_sgd_seconds_to_target"] == free["seconds_to_target"]
    assert read_summary(tmp_path)["verdict_sync_beaten"] == "holds"


def test_pushing_and_pulling_seldom_saves_words(tmp_path, undrawn):
    often = run(tmp_path / "often")[1]
    seldom = run(tmp_path / "seldom", "--n_push=3", "--n_fetch=4")[1]
    mine = "Downpour SGD", 0.5
    assert seldom[mine]["words_sent"] < 0.4 * often[mine]["words_sent"]
    assert seldom[mine]["updates"] == 4 * 12 / 3
    in_step = "sync SGD", 0.5
    assert seldom[in_step] == often[in_step]


def test_each_way_takes_the_rate_with_which_it_is_first(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(downpour, "draw", lambda path, cases: seen.append(cases))
    summary, rows = run(tmp_path, "--lr=0.001,0.5", "--target=0.85")
    assert rows["sync SGD", 0.001]["seconds_to_target"] is None
    assert summary["sync_sgd_rate"] == summary["downpour_sgd_rate"] == 0.5
    assert list(downpour_report.best(seen[0])) == list(downpour.STRATEGIES)
