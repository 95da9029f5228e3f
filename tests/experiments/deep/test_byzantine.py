"""The heat map of byzantine.py: its cells, worst cases, presets and bad input."""

import math

import byzantine
import numpy as np
import pytest
from lab import parallel
from studies.byzantine import claims, presets, report, rules, runs, training
from studies.byzantine.cells import Cell, Line
from studies.papers.runs import PAPERS

from dml.case import measure
from dml.runs import results
from dml.types import BadInput
from dml.wire.reducers.robust.attacks import alie_factor
from dml.wire.reducers.robust.selection import scores

SMALL = "--steps=3 --honest=4 --attackers=0,1 --batch=5 --processes=1"
SIZES = training.Sizes("digits", honest=4, batch=5, steps=3, lr=0.1, momentum=True)


def run(path, *flags):
    """Run the command; return its summary and rows."""
    summary = byzantine.main(["byzantine", *SMALL.split(), f"--out={path}", *flags])
    return summary, results.read(path).rows


@pytest.mark.parametrize("rule", ("krum", "trimmed_mean"))
@pytest.mark.parametrize("attack", ("alie:1.5", "label_flip", "noise"))
def test_a_cell_has_the_bits_of_a_training_on_one_rank_per_worker(rule, attack):
    cell = Cell("similarity:0", rule, attack, 1, seed=3)
    case = training.case(SIZES, cell)
    (alone,), ranks = measure(case), measure(case._replace(ranks=5))
    assert {rank.sha256 for rank in ranks} == {alone.sha256}


def test_the_printed_row_has_the_mean_of_all_seeds(tmp_path):
    summary, rows = run(tmp_path, "--rules=median", "--attacks=ipm", "--seeds=2")
    (row,) = rows
    cells = [Cell("similarity:0.33", "median", "ipm", 1, seed) for seed in (0, 1)]
    expected = [training.accuracy(SIZES, cell) for cell in cells]
    assert row["accuracies"]["1"] == expected
    assert row["accuracy_1"] == pytest.approx(np.mean(expected))
    assert summary["trainings"] == 4
    assert (tmp_path / "heat_map.svg").exists()
    assert (tmp_path / "worst_case.svg").exists()


def test_without_attackers_all_attacks_share_a_training(tmp_path):
    summary, rows = run(tmp_path, "--rules=mean,median", "--attacks=ipm,mimic,noise")
    assert summary["trainings"] == 2 * (1 + 3)
    by_rule = {row["rule"]: row["accuracy_0"] for row in rows}
    assert all(row["accuracy_0"] == by_rule[row["rule"]] for row in rows)


def test_a_rule_that_needs_more_workers_has_a_dash(tmp_path, capsys):
    summary, rows = run(
        tmp_path, "--rules=bulyan,mean", "--attacks=ipm", "--attackers=0,1"
    )
    assert rows[0]["rule"] == "bulyan" and rows[0]["accuracy_1"] is None
    assert summary["bulyan_worst_1"] is None
    assert summary["best_rule"] == "mean"
    line = next(
        line for line in capsys.readouterr().out.splitlines() if "bulyan" in line
    )
    assert line.split()[-1] == "-"


def lines(**accuracies):
    """Return rows of rules under attacks a and b with 0 and 1 attackers."""
    return [
        report.row(Line("iid", rule, attack), {0: [0.9], 1: [value]})
        for rule, values in accuracies.items()
        for attack, value in zip("ab", values, strict=True)
    ]


def test_the_worst_case_is_the_least_accuracy_over_attacks(tmp_path):
    rows = lines(mean=(0.8, 0.1), krum=(0.5, 0.6))
    assert report.worst(rows, "mean", 1) == (0.1, "b", "iid")
    assert report.worst(rows, "mean", 0).attack == "none"
    summary = report.summarize(rows)
    assert (summary["best_rule"], summary["krum_attack_1"]) == ("krum", "a")
    assert report.conclude(results.Run(tmp_path, {}, {}, summary, [])) == (
        "With 1 attackers the best worst case is 50.0%, of krum under a; the mean has "
        "10.0%."
    )


def test_an_own_rule_of_a_file_is_trained(tmp_path):
    """It repeats the mean, so that its accuracies are those of `mean`."""
    file = tmp_path / "mine.py"
    file.write_text(
        "from dml.wire.reducers.robust import Rule, mean\n"
        "def same(faulty):\n"
        "    return Rule('same', *mean(faulty)[1:])\n"
    )
    _, rows = run(
        tmp_path / "out", f"--rules=mean+nnm,{file}:same+nnm", "--attacks=ipm"
    )
    first, second = rows
    assert first["accuracies"] == second["accuracies"]
    assert second["rule"] == "mine.py:same+nnm"


def test_the_argument_of_a_rule_may_have_the_number_of_attackers():
    texts = runs.unique("centred_clipping:F,0.5+nnm,krum,krum,median:1")
    assert texts == ["centred_clipping:F,0.5+nnm", "krum", "median:1"]
    clipping, (mixing,) = rules.estimator(texts[0], 2)
    assert clipping.name == "centred_clipping" and clipping.faulty == 2
    assert mixing.name == "nnm"
    assert rules.estimator(texts[2], 2).rule.faulty == 1


def test_flags_of_the_command_line_override_a_preset():
    values = byzantine.flags.parse(
        byzantine.FLAGS, ["byzantine", "--preset=byzfl", "--steps=7"]
    )
    presets.apply(values)
    assert (values.steps, values.seeds, values.batch) == (7, 3, 25)
    values = byzantine.flags.parse(byzantine.FLAGS, ["byzantine", "--quick"])
    presets.apply(values)
    assert values.attackers == presets.PRESETS["quick"]["attackers"]


def test_processes_yield_results_in_order():
    numbers = [9.0, 4.0, 1.0, 0.0]
    assert list(parallel.results(math.sqrt, numbers, 2, int)) == [3.0, 2.0, 1.0, 0.0]


@pytest.mark.parametrize(
    "flags, message",
    (
        ("--rules=krumm", "expected --rules of mean, .*got 'krumm'"),
        ("--rules=krum+feedback", "expected krum with .nnm"),
        ("--rules=krum+nnm+nnm", "each at most once"),
        ("--rules=krum:x", r"expected krum\[:F\], got .krum:x.: F is .x."),
        ("--rules=bulyan --attackers=1 --honest=3", r"n >= 4f\+3 = 7"),
        ("--attacks=ali", "expected an attack of sign_flip"),
        ("--attackers=1,-1", "whole numbers from 0 to 1024 in --attackers"),
        ("--attackers=", "whole numbers"),
        ("--skews=gamma:1", "expected a skew of similarity:GAMMA"),
        ("--skews=similarity:2", "GAMMA is .2. instead of a number from 0 to 1"),
        ("--data=nowhere", "nowhere"),
        ("--honest=1024 --data=digits --batch=1 --skews=dirichlet:0", "dirichlet"),
    ),
)
def test_bad_input_is_refused_before_any_training(tmp_path, flags, message):
    path = tmp_path / "out"
    with pytest.raises(BadInput, match=message):
        byzantine.main(["byzantine", *SMALL.split(), *flags.split(), f"--out={path}"])
    assert not path.exists()


def test_claims_need_their_rules_and_attacks():
    assert claims.testable(["krum", "mean"], ["alie", "alie:1.5"]) == [
        claims.mean_breaks,
        claims.krum_falls,
    ]
    assert claims.krum_holds in claims.testable(["krum"], ["noise"])
    assert claims.krum_holds not in claims.testable(["krum"], ["noise", "alie"])


def test_krum_selects_attackers_of_twice_alies_factor_in_the_command_of_its_paper():
    (command,) = PAPERS["alie"].commands.values()
    words = (word[2:].partition("=") for word in command.words("full"))
    values = {name: value for name, _, value in words}
    honest, faulty = int(values["honest"]), int(values["attackers"].split(",")[-1])
    rows = np.random.default_rng(0).standard_normal((honest, 1000))

    def selected(factor):
        attackers = np.tile(rows.mean(axis=0) - factor * rows.std(axis=0), (faulty, 1))
        both = np.concatenate((rows, attackers))
        squared = ((both[:, None] - both) ** 2).sum(axis=-1)
        return scores(squared, faulty).argmin() >= honest

    attacks = [name.partition(":") for name in values["attacks"].split(",")]
    factors = filter(selected, (float(z) for _, colon, z in attacks if colon))
    assert max(factors) >= 2 * alie_factor(honest + faulty, faulty)
