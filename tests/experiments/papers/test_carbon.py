from pathlib import Path

import carbon
import pytest
from studies.carbon import glove as carbon_glove
from studies.carbon import report as carbon_report
from studies.carbon import rows as carbon_rows
from studies.carbon.tables import PATTERSON, STRUBELL

from dml.runs.results import Run
from dml.types import BadInput
from tests.experiments.run_folder import check_folder

NEEDS = {"serial": 4, "rotation": 4, "hogwild": 5, "server": 3, "operation": 99}
WATTS = {"serial": 10, "rotation": 20, "hogwild": 15, "server": 40, "operation": 1}


class Runner:
    """Runs whose loss falls to 1 after the epochs that a way needs; keeps what ran."""

    def __init__(self):
        self.ran = []

    def __call__(self, way, epochs):
        self.ran.append((way, epochs))
        rows = [{"loss": NEEDS[way] / n} for n in range(1, epochs + 1)]
        energy = epochs * WATTS[way] / 1e6
        summary = {
            **{"seconds": float(epochs), "energy_kwh": energy, "co2_kg": energy / 2},
            **{"cost_usd": energy / 10, "energy_source": "CPU time x 10 W"},
        }
        return Run(Path(way), {}, {}, summary, rows)


def test_each_way_is_metered_as_long_as_it_needs_and_no_longer():
    run = Runner()
    rows = list(carbon_glove.rows(list(NEEDS), 2, 4, None, run))
    found = {row["strategy"]: row["epochs"] for row in rows}
    assert found == NEEDS | {"operation": None}
    assert {row["target"] for row in rows} == {1.0}
    assert [row["ranks"] for row in rows] == [1, 2, 2, 2, 2]
    # none of first runs counts: they may have counted the corpus, and compiled
    tried = {way: [n for one, n in run.ran if one == way] for way in NEEDS}
    assert tried == {
        **{"serial": [4, 4], "rotation": [5, 4], "hogwild": [5, 5], "server": [5, 3]},
        "operation": [5, 10, 20],
    }
    for row in rows[:-1]:
        assert row["kwh"] == row["epochs"] * WATTS[row["strategy"]] / 1e6
    # 4 x 10, 4 x 20, 5 x 15, 3 x 40
    assert carbon_report.best(rows)["strategy"] == "serial"


def test_a_given_target_is_looked_for_by_serial_as_well():
    run = Runner()
    (row,) = carbon_glove.rows(["serial"], 2, 1, 0.5, run)
    assert run.ran == [("serial", 2), ("serial", 4), ("serial", 8), ("serial", 8)]
    assert (row["epochs"], row["target"]) == (8, 0.5)


def test_a_run_that_came_out_worse_has_an_epoch_more():
    losses = {9: [3, 2, 1] + [1] * 6, 3: [3, 2, 1.1], 4: [3, 2, 1.1, 0.9]}
    kept = []

    def run(epochs):
        kept.append(epochs)
        rows = [{"loss": loss} for loss in losses[epochs]]
        return Run(Path(), {}, {}, {}, rows)

    assert len(carbon_glove.run_to_target(run, run(9), 1.0).rows) == 4
    assert kept == [9, 3, 4]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return run(*flags) -> summary, on runs that are made up."""

    def command(path, ranks, given, *which):
        run.given = given
        return Runner()(*which)

    def run(*argv):
        return carbon.main(["carbon.py", f"--out={tmp_path}", *argv])

    monkeypatch.setattr(carbon_glove, "run_glove", command)
    return run


def test_the_published_tables_follow_from_their_inputs(run, tmp_path, capsys):
    summary = run("--nomeasure")
    assert summary["strubell_cells"] == summary["strubell_exact"] == 26
    assert summary["strubell_worst_error"] == 0
    # BERT's four cells and the two of NAS on a TPU are of other hours
    assert summary["strubell_exact_printed"] == 20
    assert summary["strubell_worst_error_printed"] == pytest.approx(4 / 1438)
    # days have two or three digits
    assert 0 < summary["patterson_worst_error"] < 0.02
    assert summary["patterson_follows"] == len(PATTERSON)
    check_folder(tmp_path, summary)
    said = capsys.readouterr().out
    assert "4 differ" in said
    assert said.count("  equal\n") == len(STRUBELL)
    assert not list(tmp_path.glob("*.svg")) and "GloVe" not in said


def test_a_wrong_cell_is_seen():
    base = STRUBELL[0]
    for wrong in ({"kwh": 28}, {"pounds": 25}, {"dollars": (41, 139)}, {"devices": 9}):
        row = carbon_rows.recompute(base._replace(**wrong), base.hours, "printed")
        assert row["unequal"]
        cells, equal, worst = carbon_rows.agreement([row])
        assert cells == 4 and equal < 4 and worst > 0


def test_a_training_elsewhere_emits_by_pue_and_grid():
    for row in carbon_rows.patterson():
        ratio = 1.58 / row["pue"] * 0.4327 / row["intensity"]
        assert row["average_ratio"] == pytest.approx(ratio, rel=1e-4)
        assert carbon_rows.days_agree(row)
        assert not carbon_rows.days_agree(row | {"implied_days": 1.06 * row["days"]})


def test_glove_is_metered_by_way_and_drawn(run, drawn, tmp_path, capsys):
    summary = run("--strategies=serial,server,operation", "--epochs=4", "--dim=8")
    assert run.given == ["--dim=8"]
    assert summary["glove_server_kwh"] == pytest.approx(120e-6)
    assert summary["glove_serial_epochs"] == 4
    assert summary["glove_server_epochs"] == 3
    assert summary["glove_operation_kwh"] is None
    assert (summary["glove_best"], summary["glove_target"]) == ("serial", 1.0)
    said = capsys.readouterr().out
    assert "least energy: serial, ranks: 1, 0.0400 Wh by CPU time x 10 W" in said
    svg = (tmp_path / "carbon.svg").read_text()
    for word in ("serial, 1", "server, 2", "Wh to loss 1.00000; CPU time x 10 W"):
        assert f"<!-- {word} -->" in svg
    assert "operation" not in svg


def test_a_command_that_fails_ends_it_with_its_last_words(tmp_path):
    given = ["--corpus=/nowhere"]
    with pytest.raises(BadInput, match=r"serial of 1 epochs ended with 2: .*/nowhere"):
        carbon_glove.run_glove(tmp_path, 2, given, "serial", 1)
