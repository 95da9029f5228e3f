import sys
from contextlib import nullcontext
from unittest.mock import Mock

import pytest
from lab import flags, writing
from lab.claims import claim, verdict

from dml import sim
from dml.runs import writers
from dml.runs.energy import Terms
from dml.runs.writers import Writer
from dml.types import BadInput
from tests.experiments.run_folder import read_rows, read_summary

SPENT = {"energy_kwh", "energy_source", "co2_kg", "cost_usd"}


def values(*argv):
    return flags.parse(flags.define(), ["experiment", *argv])


def wrote(path, *argv, comm=None):
    with writing.run_writer(path, values(*argv), comm) as writer:
        writer.row({"step": 1, "loss": 0.5})
        writer.summary({"loss": 0.5})


def test_every_summary_has_the_time_and_energy_of_the_run(tmp_path):
    wrote(tmp_path)
    summary = read_summary(tmp_path)
    assert set(summary) == {"status", "loss"} | SPENT
    assert summary["energy_kwh"] > 0
    assert summary["co2_kg"] == pytest.approx(summary["energy_kwh"] * 1.58 * 0.4327)
    kept = {one.name for one in tmp_path.iterdir()}
    assert kept == {"config.json", "metrics.jsonl", "summary.json"}


def test_co2_and_dollars_are_by_the_flags(tmp_path):
    asked = ["--pue=1.1", "--grid=0.02", "--core_price=0", "--gpu_price=0"]
    wrote(tmp_path, *asked, "--watts=7")
    summary = read_summary(tmp_path)
    assert summary["co2_kg"] == pytest.approx(summary["energy_kwh"] * 1.1 * 0.02)
    assert summary["cost_usd"] == 0
    assert writing.energy_terms(values()) == Terms()  # the flags' defaults are its own


@pytest.mark.parametrize("name", Terms._fields)
@pytest.mark.parametrize("value", ["inf", "-1", "nan", "1e300"])
def test_terms_that_make_no_number_are_refused(name, value):
    with pytest.raises(BadInput, match=name):
        values(f"--{name}={value}")


def test_flags_select_a_table_and_tensorboard(tmp_path):
    wrote(tmp_path, "--csv", "--tensorboard")
    assert (tmp_path / "metrics.csv").read_text() == "step,loss\n1,0.5\n"
    assert len(list(tmp_path.glob("events.out.tfevents.*"))) == 1


def test_a_flag_selects_a_tracker_and_a_missing_one_is_refused(tmp_path, monkeypatch):
    got = {}
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(BadInput, match="trackio, got none; pip install '.*track]'"):
        wrote(tmp_path / "refused", "--track=trackio")
    assert not (tmp_path / "refused").exists()

    def init(**options):
        got.update(options)
        return Mock(log=lambda row, step: got.update(row))

    stand_in = Mock(init=init, finish=lambda: got.update(ended=True))
    stand_in.__spec__ = stand_in  # it is installed
    monkeypatch.setitem(sys.modules, "trackio", stand_in)
    wrote(tmp_path / "run", "--track=trackio", "--watts=7")
    assert got["config"]["watts"] == 7 and got["config"]["track"] == "trackio"
    assert (got["loss"], got["summary/loss"], got["ended"]) == (0.5, 0.5, True)
    assert SPENT - {"energy_source"} <= {name.removeprefix("summary/") for name in got}


def test_rank_0_writes_and_others_get_what_all_are_given(tmp_path):
    seen = []

    def program(comm):
        keep = writers.tee(nullcontext(Writer(seen.append, seen.append)))
        with writing.run_writer(tmp_path, values(), comm, keep) as writer:
            writer.row({"rank": comm.rank})
            writer.summary({"rank": comm.rank})
            assert comm.rank or len(seen) == 1  # the summary waits for the end

    sim.run(program, 3)
    row, summary = seen
    assert row == {"rank": 0}
    assert set(summary) == {"rank"} | SPENT


def test_a_run_without_a_summary_writes_none_and_one_that_raises_the_error(tmp_path):
    with writing.run_writer(tmp_path, values(), None):
        pass
    assert not (tmp_path / "summary.json").exists()
    with (
        pytest.raises(FloatingPointError),
        writing.run_writer(tmp_path, values("--overwrite"), None) as writer,
    ):
        writer.summary({"loss": 1.0})
        raise FloatingPointError("expected a finite loss")
    summary = {"status": "failed", "error": "expected a finite loss"}
    assert read_summary(tmp_path) == summary


def test_what_is_for_one_process_is_not_done_by_each_of_many(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "processes", lambda: 2)
    with pytest.raises(
        BadInput, match="one process, got 2 ranks.*; start without mpirun"
    ):
        wrote(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_table_is_made_of_those_before_it_and_its_rows_carry_its_name(tmp_path):
    made = {
        "first": lambda plan, kept: [{"n": n} for n in plan],
        "squares": lambda plan, kept: [{"n": row["n"] ** 2} for row in kept["first"]],
    }
    with writing.run_writer(tmp_path, values(), None) as writer:
        kept = writing.write_tables(writer, made, [2, 3])
    assert kept == {"first": [{"n": 2}, {"n": 3}], "squares": [{"n": 4}, {"n": 9}]}
    assert read_rows(tmp_path) == [
        {"table": name} | row for name, rows in kept.items() for row in rows
    ]


def test_values_of_rows_are_named_by_a_template():
    rows = [{"way": "ring", "p": 2, "s": 0.5}, {"way": "tree", "p": 4, "s": None}]
    assert writing.flatten_rows(rows, "{key}_{way}_{p}", "s", "p") == {
        "s_ring_2": 0.5,
        "p_ring_2": 2,
        "s_tree_4": None,
        "p_tree_4": 4,
    }


def test_the_conclusion_precedes_the_count_of_claims(tmp_path, capsys):
    @claim("a falls", "by 1")
    def falls(run):
        return verdict(run.rows[-1]["a"] < run.rows[0]["a"], "2 to 1", "reason")

    def conclude(run):
        a, b = run.rows[-1]["a"], run.summary["b"]
        return f"a is {a} at {run.flags['watts']:g} W and {b}."

    options = {"claims": (falls,), "conclude": conclude}
    with writing.run_writer(tmp_path, values("--watts=7"), None, **options) as writer:
        writer.row({"a": 2})
        writer.row({"a": 1})
        writer.summary({"b": 3})
    *_, answer, count = capsys.readouterr().out.splitlines()
    assert answer == "a is 1 at 7 W and 3."
    place = f"The results are in {tmp_path}."
    assert count == f"1 of 1 published results hold. {place}"
    assert read_summary(tmp_path)["verdict_falls"] == "holds"


def test_one_virtual_rank_reads_the_counters_of_the_process(tmp_path, monkeypatch):
    meter = Mock(wraps=writing.energy.meter)
    monkeypatch.setattr(writing.energy, "meter", meter)
    sim.run(lambda comm: wrote(tmp_path, comm=comm), 5)
    assert meter.call_count == 1
