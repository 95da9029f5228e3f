"""averaging.py: rounds that ran, Moshpit's printed table, contractions and teapots."""

from types import SimpleNamespace

import averaging
import numpy as np
import pytest
from studies.averaging import printed, report, rounds
from studies.averaging.methods import METHODS, evaluate, grid_text, run

from dml.wire.plans.averaging.contraction import grid_variances
from dml.wire.plans.averaging.graphs import topology
from tests.experiments.run_folder import check_folder, read_rows

SMALL = "--p=6,16,64 --sides=4x4x4 --absences=0,0.2 --peers=64 --restarts=2"
SMALLER = "--draws=300 --ranks=6 --rounds=3 --grid_restarts=2"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A small run: its folder, its summary, its rows by table."""
    out = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "RUN_STEPS", 700)
        patch.setattr(rounds, "EVALUATED_STEPS", 1e5)
        argv = [*SMALL.split(), *SMALLER.split(), f"--out={out}"]
        summary = averaging.main(["averaging.py", *argv])
    tables = {}
    for row in read_rows(out):
        tables.setdefault(row["table"], []).append(row)
    return out, summary, tables


def test_summary_has_rounds_of_every_protocol_and_number_of_peers(made):
    out, summary, tables = made
    check_folder(out, summary, "averaging.svg", "averaging.png")
    for p in (6, 16, 64):
        for name in METHODS:
            assert (
                summary[f"{name}_rounds_{p}"] >= summary[f"{name}_rounds_to_1e-4_{p}"]
            )
    assert summary["one_peer_exponential_rounds_16"] == 4
    assert summary["push_sum_rounds_64"] == 6
    assert summary["moshpit_rounds_16"] == summary["moshpit_rounds_64"] == 2
    assert summary["relay_chain_rounds_16"] == 15
    assert summary["relay_tree_rounds_16"] == 7
    assert summary["all_reduce_rounds_6"] == 1


def test_legends_are_below_the_curves(tmp_path, monkeypatch):
    panels = []
    monkeypatch.setattr(
        report.figures, "save", lambda figure, path: panels.extend(figure.axes)
    )
    row = {"absence": 0.0, "peers": 64, "variance": 0.1, "exact": 0.1}
    given = SimpleNamespace(sizes=[16], absences=[0.0], seed=0)
    report.draw(tmp_path / "x", {"teapots": [row, row]}, given)
    assert panels
    for axes in panels:
        assert axes.get_legend().get_window_extent().y1 < axes.get_window_extent().y0


def test_rows_that_ran_equal_their_evaluation_and_count_the_bytes_of_the_plan(made):
    kinds = set()
    for row in made[2]["rounds"]:
        kinds.add(row["kind"])
        plan = METHODS[row["protocol"]].plan(row["p"], 0)
        if row["kind"] != "run":
            assert row["p"] > 6
            continue
        assert row["difference"] < 1e-12 and row["mean_error"] < 1e-12
        assert row["seconds"] > 0
        sent = [
            rounds.bytes_per_round(row["protocol"], plan, t, 16)
            for t in range(row["rounds_1e-9"])
        ]
        assert row["bytes"] * row["p"] == sum(sent)
    assert kinds == {"run", "evaluated", "formula"}


def test_a_formula_gives_the_rounds_of_an_evaluation():
    for name in ("ring", "torus", "exponential"):
        formula = rounds.expected_rounds(topology(name, 32))
        variances = [evaluate(name, 32, seed, 2 * formula[1]).variances
                     for seed in range(8)]  # fmt: skip
        mean = np.mean(variances, 0) / np.mean([one[0] for one in variances])
        for target, stated in zip(rounds.TARGETS, formula, strict=True):
            assert rounds.first_below(mean, target) == pytest.approx(stated, rel=0.2)


@pytest.mark.parametrize("name", METHODS)
def test_a_run_of_a_method_has_the_variances_of_its_evaluation(name):
    ran, evaluated = run(name, 12, 1, 5), evaluate(name, 12, 1, 5)
    assert np.allclose(ran.variances, evaluated.variances, atol=1e-14)
    assert ran.mean_error == pytest.approx(evaluated.mean_error, abs=1e-14)


def test_the_printed_numbers_of_the_notebook_are_reproduced():
    found = {row["method"]: row for row in printed.rows([512], [0.01], 10)}
    for name in ("all_reduce", "gossip", "sgp", "random_groups"):
        for target in ("1e-9", "1e-4"):
            published = found[name][f"published_{target}"]
            assert found[name][f"rounds_{target}"] == pytest.approx(published)
    assert found["sgp"]["mean_error"] > 1e-4  # rows are normalised
    assert found[printed.OURS]["mean_error"] < 1e-5
    exact = {row["method"]: row for row in printed.rows([512], [0.0], 2)}
    assert exact[printed.OURS]["rounds_1e-9"] == 9
    assert exact[printed.OURS]["published_1e-9"] is None


def test_sgp_of_the_notebook_is_its_dense_matrix():
    """Rolled without an axis: entries beyond the last column go to the next row."""
    p, values = 12, np.arange(12.0) ** 2
    alive = np.arange(12) != 3
    for hop in range(3):
        dense = np.diag(np.full(p, 0.5))
        for shift in (2**hop, 2 ** (hop + 1)):
            dense += np.roll(np.diag(np.full(p, 0.5)), shift)
        dense[:, ~alive] = dense[~alive] = 0
        sums = dense.sum(1, keepdims=True)
        dense /= np.where(sums, sums, 1)
        stated = np.where(alive, dense @ values, values)
        assert np.allclose(printed.sgp(p, None)(values, alive, hop), stated)


def test_contractions_and_teapots_have_their_formulas(made):
    _, summary, tables = made
    for row in tables["contractions"]:
        assert row["measured"] == pytest.approx(row["exact"], abs=5 * row["error"])
    exact = grid_variances((4, 4, 4), 3, 0.8)
    steps = [row for row in tables["teapots"] if row["absence"] == 0.2]
    assert [row["exact"] for row in steps] == pytest.approx(exact)
    assert summary["teapots_0_variance_3"] < 1e-30 < summary["teapots_0.2_variance_3"]
    assert "teapots_0_seconds" in summary


def test_only_gossip_loses_the_mean_when_messages_are_lost(made):
    for row in made[2]["faults"]:
        assert row["difference"] < 1e-12
        if row["faults"] in ("loss 0.05", "absence 0.05"):
            lost = row["mean_error"] > 1e-6
            assert lost == (row["protocol"] == "one_peer_exponential")


@pytest.mark.parametrize("p", (2, 16, 64, 100, 512, 900, 1024, 1 << 20))
def test_the_grid_of_a_method_has_a_seat_for_every_peer(p):
    sides = list(map(int, grid_text(p)[5:].split("x")))
    assert np.prod(sides) >= p and max(sides) <= 32 and len(sides) >= 2
    assert np.prod(sides) == p or p & (p - 1)
