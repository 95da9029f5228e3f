import linear
import pytest
import stragglers
from studies.stragglers import ranks as stragglers_ranks

from dml.sim.delays import delay_distribution, seconds
from tests.experiments.run_folder import check_folder, read_rows

SMALL = ["--measure=0", "--steps=40", "--workers=4"]


def run(out, *argv):
    (summary,) = stragglers.main(["stragglers.py", f"--out={out}", *SMALL, *argv])
    return summary, read_rows(out)


def test_running_ranks_take_as_long_as_by_max_and_plus_in_all_ways(tmp_path):
    _, rows = run(tmp_path, "--workers=1,4,30")
    assert len(rows) == 2 * 3 * 4
    assert max(row["virtual_error"] for row in rows) < 1e-12
    assert {row["measured"] for row in rows} == {None}


def test_long_runs_come_near_their_formula(tmp_path):
    _, rows = run(tmp_path, "--steps=3000", "--workers=8", "--law=lognormal:2,0.5")
    known = [row for row in rows if row["formula"]]
    assert [row["barrier"] for row in known] == [
        "synchronous",
        "k of p",
        "asynchronous",
    ]
    for row in known:
        assert row["maxplus"] == pytest.approx(row["formula"], rel=0.02)


def test_a_run_leaves_a_table_a_flat_summary_and_a_figure(tmp_path):
    summary, rows = run(tmp_path)
    check_folder(tmp_path, summary, "stragglers.svg", "stragglers.png")
    assert all(isinstance(value, float) for value in summary.values())
    assert summary["pareto_k_of_p_4"] == rows[5]["maxplus"]
    assert len(rows) == 8


@pytest.mark.mpi
def test_real_ranks_that_sleep_take_little_longer_than_virtual_ones(tmp_path):
    flags = ["--measure=2", "--workers=", "--law=constant:1", "--scale=0.01"]
    _, rows = run(tmp_path, *flags)
    assert [row["workers"] for row in rows] == [2] * 4
    for row in rows:
        assert 1 <= row["measured"] < 2
        assert row["virtual"] == 1


def test_without_mpirun_nothing_is_measured_and_a_line_has_the_reason(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(
        stragglers_ranks.started.processes.shutil, "which", lambda *_, **__: None
    )
    _, rows = run(tmp_path, "--measure=8")
    assert [row["measured"] for row in rows] == [None] * 8
    assert "mpirun" in capsys.readouterr().err


# The shared flag --straggle.


def trained(out, *argv):
    few = ["--simulate=4", "--steps=6", "--batch=32", "--network=0,0,0"]
    summaries = linear.main(["linear.py", f"--out={out}", *few, *argv])
    return summaries, [row["loss"] for row in read_rows(out)]


def test_training_waits_for_the_slowest_and_learns_the_same_bits(tmp_path):
    text = "shifted_exponential:1,0.5*1,0.5"
    summaries, losses = trained(tmp_path / "late", f"--straggle={text}")
    assert losses == trained(tmp_path / "free")[1]
    draws_TxP = seconds(delay_distribution(text), 0, steps=6, size=4)
    for summary, mine in zip(summaries, draws_TxP.T, strict=True):
        assert summary["gradient_seconds"] == pytest.approx(mine.sum(), rel=1e-12)
    whole = summaries[0]["gradient_seconds"] + summaries[0]["wire_seconds"]
    assert whole == pytest.approx(draws_TxP.max(axis=1).sum(), rel=1e-12)


def test_real_ranks_straggle_asleep(tmp_path):
    few = f"--out={tmp_path}", "--steps=6", "--batch=32"
    (summary,) = linear.main(["linear.py", *few, "--straggle=constant:0.05"])
    assert summary["gradient_seconds"] >= 6 * 0.05


def test_an_epoch_of_glove_takes_the_laws_time_once(train):
    flags = ("--simulate=2", "--medium=messages", "--straggle=constant:3")
    for summary in train(*flags):
        assert summary["epoch_seconds"] == pytest.approx(3, rel=0.01)
        rate = summary["records"] / 3
        assert summary["records_per_second"] == pytest.approx(rate, rel=0.01)
