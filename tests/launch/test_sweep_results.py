"""The tables and the figure of a sweep, from endings and from run folders."""

import io
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
import sweep
import sweep_grid
import sweep_results
import sweep_runs
import sweep_table
from rich.console import Console
from sweep_grid import Cell
from sweep_runs import Ended, Job, Running, SweepState

from dml.runs import folder as run_folders
from dml.types import BadInput

SCRIPT = str(Path(__file__).with_name("swept_main.py"))


@pytest.fixture
def ended(tmp_path):
    """Return ended(ranks, flags, summary) -> a run that ended, in its folder."""

    def write(ranks, flags, summary=None, error="", seconds=1.0):
        cell = Cell(ranks, flags)
        folder = tmp_path / sweep_grid.folder_name("x.py", cell)
        with run_folders.folder(folder, flags, overwrite=True) as writer:
            if summary is not None:
                writer.summary(summary)
        (folder / "output.txt").touch()
        job = Job(f"lr={flags.get('lr')}", cell, folder, [], ranks or 1)
        return Ended(job, int(bool(error)), seconds, error)

    return write


def grid(ended, losses):
    """Return the runs of losses[lr][seed]."""
    return [
        ended(2, {"text": "a", "lr": lr, "seed": str(seed)}, {"loss": loss})
        for lr, of in losses.items()
        for seed, loss in enumerate(of)
    ]


def test_groups_have_numpys_median_and_quartiles(ended):
    random = np.random.default_rng(0)
    losses = {lr: random.normal(size=n).tolist() for lr, n in (("0.5", 7), ("2", 4))}
    found = grid(ended, losses)
    for seed in "89":
        flags = {"text": "a", "lr": "2", "seed": seed}
        found.append(ended(2, flags, {"loss": 1e9}, "oh", 99.0))
    rows = sweep_results.frame(found)
    assert rows.columns[:4] == ["lr", "n", "text", "seed"]
    groups = sweep_results.groups(rows, sweep_results.keys([e.job.cell for e in found]))
    assert groups["lr"].to_list() == [0.5, 2.0]
    assert groups["count"].to_list() == [7, 4]
    assert groups["wall_seconds_q3"].to_list() == [1.0, 1.0]
    for row, of in zip(groups.iter_rows(named=True), losses.values(), strict=True):
        statistics = [row[f"loss_{name}"] for name in ("q1", "median", "q3")]
        assert statistics == pytest.approx(np.quantile(of, [0.25, 0.5, 0.75]))
    (first, _) = sweep_results.printed_columns(groups, ["lr", "text"], "loss")
    low, median, high = np.quantile(losses["0.5"], [0.25, 0.5, 0.75])
    spread = f"{median:.4g} ({low:.3g} … {high:.3g})"
    assert first == {"lr": "0.5", "count": "7", "loss": spread}


def test_runs_of_one_cell_are_one_group_and_a_failure_has_found_nothing(ended):
    rows = sweep_results.frame([ended(None, {}, {"loss": x}) for x in (1, 2)])
    assert sweep_results.groups(rows, [])["count"].to_list() == [2]
    failed = ended(2, {"lr": "1"}, {"loss": 1.0}, error="no luck")
    assert "loss" not in sweep_results.frame([failed]).columns


def test_columns_of_mixed_types_are_written_and_read(ended, tmp_path):
    mixed = [1, "one", True, None, 1.5, float("nan"), 10**30, {"not": "flat"}]
    found = [
        ended(None, {"lr": lr}, {"mixed": x, "whole": k, "yes": k > 2, "real": k / 2})
        for k, (x, lr) in enumerate(zip(mixed, "1234567x", strict=True))
    ]
    rows = sweep_results.frame(found)
    sweep_results.write(tmp_path, results=rows)
    again = pl.read_parquet(tmp_path / "results.parquet")
    assert again.equals(rows, null_equal=True)
    names = "lr", "mixed", "whole", "yes", "real"
    kinds = [pl.String, pl.String, pl.Int64, pl.Boolean, pl.Float64]
    assert [again[name].dtype for name in names] == kinds
    csv = pl.read_csv(tmp_path / "results.csv", infer_schema=False)
    assert csv["mixed"].to_list()[:4] == ["1", "one", "True", None]
    numbers = sweep_results.series("x", [1, 2.5, 10**30, None])
    assert numbers.dtype == pl.Float64 and numbers.null_count() == 1
    beyond = sweep_results.series("x", [10**400, "\ud800", None])
    assert beyond.to_list() == ["1" + 400 * "0", "?", None]
    assert sweep_results.series("x", [10**400, 1]).to_list()[1] == "1"


def test_no_name_hides_another(ended):
    taken = {"lr": 7, "code": 8, "error_message": 9, "n": 10}
    rows = sweep_results.frame([ended(3, {"lr": "1", "run": "x", "n": "4"}, taken)])
    (row,) = rows.iter_rows(named=True)
    own = [row[name] for name in ("lr", "--run", "--n", "n", "code")]
    assert own == [1, "x", 4, 3, 0]
    assert [row[f"summary.{name}"] for name in taken] == [*taken.values()]


def test_a_figure_has_medians_and_quartiles_by_name(ended, monkeypatch, tmp_path):
    drawn = {}

    def curves(path, series, **options):
        drawn.update(options, series=series)

    monkeypatch.setattr("dml.figures.style.curves", curves)
    rows = sweep_results.frame(grid(ended, {"1": [1.0, 2.0, 3.0], "0.5": [5.0, 7.0]}))
    sweep_results.draw(tmp_path, rows, "lr", "loss", "text", "x")
    assert drawn["series"] == {"text a": ([0.5, 1.0], [6.0, 2.0])}
    assert drawn["bands"] == {"text a": ([5.5, 1.5], [6.5, 2.5])}
    assert (drawn["x"], drawn["y"], drawn["log"]) == ("lr", "loss", "x")
    odd = rows.with_columns(text=pl.lit("$_$ 語"))
    sweep_results.draw(tmp_path, odd, "lr", "loss", "text", "")
    assert list(drawn["series"]) == ["text \\$_\\$ □"]
    sweep_results.draw(tmp_path, rows, "n", "wall_seconds", None, "")
    assert drawn["series"] == {"wall_seconds": ([2], [1.0])}
    for axes in (
        ("lrr", "loss", None),
        ("lr", "error_message", None),
        ("lr", "loss", "lrr"),
    ):
        with pytest.raises(
            BadInput, match="expected --.* of .*lr.*, got (lrr|error_message)"
        ):
            sweep_results.draw(tmp_path, rows, *axes, "")


def test_a_finished_sweep_is_drawn_without_a_run(tmp_path):
    argv = ["sweep.py", SCRIPT, f"--out={tmp_path}", "--lr=1,2", "--repeat=2"]
    argv.append("--text=a,b")
    assert sweep.main(argv) == 0
    before = [path.stat().st_mtime_ns for path in sorted(tmp_path.glob("*/*"))]
    assert sweep.main([*argv, "--x=lr", "--y=loss", "--by=text"]) == 0
    assert [path.stat().st_mtime_ns for path in sorted(tmp_path.glob("*/*"))] == before
    svg = (tmp_path / "figure.svg").read_text()
    assert "<!-- text b -->" in svg and "FillBetweenPolyCollection" in svg


def test_a_pipe_gets_a_line_a_run(ended):
    job, screen = ended(None, {"lr": "1"}).job, io.StringIO()
    state = SweepState([job] * 3, [], [Ended(job, 0, 7200.0, "")])
    with sweep_table.table(0, 2, Console(file=screen, width=160)) as show:
        show(state)
        show(state)
    assert screen.getvalue() == "1/4  lr=1  7200.0 s  done  3.0 h left\n"


def test_a_terminal_gets_the_runs_by_state_and_the_time_left(ended, monkeypatch):
    clock = SimpleNamespace(perf_counter=lambda: 40.0)
    monkeypatch.setattr(sweep_runs, "time", clock)
    job, screen = ended(None, {"lr": "1"}).job._replace(cores=2), io.StringIO()
    (job.folder / "output.txt").write_text("first\nlast\n")
    over = [Ended(job, 0, 100.0, ""), Ended(job, 1, 5.0, "no luck")]
    begun = Running(job, None, [0, 1], 0.0)
    state = SweepState([job], [begun], over)
    Console(file=screen, width=160).print(sweep_table.picture(state, 3, 2))
    head, _, row = screen.getvalue().splitlines()
    # a waiting job takes 100 s as the last did, and one that runs 60 s more
    assert head == "4 done  1 failed  1 running  1 waiting  3 min left"
    label, cores, _, line = row.split()
    assert (label, cores, line) == ("lr=1", "0,1", "last")
