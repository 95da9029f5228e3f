"""The command dimensions.py: steps take the seconds of the formula."""

import dimensions
import numpy as np
import pytest
from studies.dimensions import gap, tables
from studies.dimensions.data import columns, in_memory, signs
from studies.dimensions.steps import (
    Machine,
    Processor,
    Task,
    Technique,
    fitted_limit,
    limit,
    predicted,
    simulated,
)

from dml.models.linear.problem import linear
from dml.types import BadInput
from dml.wire.costs.allreduce import Rates
from dml.wire.costs.linear import best_ranks, best_rows, step_words
from tests.experiments.run_folder import check_folder, read_rows

MACHINE = Machine(Processor(5e10, 3.5e10), Rates(1e-6, 1e-9, 1e-10))
WAYS = [
    Technique(1),
    Technique(8),
    Technique(1, 4),
    Technique(4, 2),
    Technique(8, 1, 2),
]
SMALL = ["--features=4096", "--nonzeros=20", "--examples=16", "--batch=8", "--steps=4"]
SMALL += ["--groups=2", "--p=1,2,4,8", "--best_p=4", "--alphas=1e-6"]


def task(nonzeros, features=4096, examples=16):
    made = in_memory(columns(examples, features, nonzeros, 0))
    return Task(linear(made, signs(examples, 0), dtype=np.float32), nonzeros)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("nonzeros, error", [(0, 0.01), (1024, 0.1)])
def test_a_simulated_step_takes_the_seconds_of_the_formula(way, nonzeros, error):
    given = task(nonzeros)
    for size in (2, 4, 16):
        took, words = simulated(given, way, size, MACHINE)
        expected = predicted(given, way, size, MACHINE)
        assert took == pytest.approx(expected, rel=error)
        if way.groups == 1:  # butterfly
            rounds = size.bit_length() - 1
            assert words * way.steps == rounds * step_words(way.steps, way.batch)


@pytest.mark.parametrize("way", WAYS[:4], ids=str)
def test_more_ranks_stop_helping_at_the_number_of_the_formula(way):
    given, sizes = task(0, 1 << 15), [1, 2, 4, 8, 16, 32, 64]
    took = [simulated(given, way, size, MACHINE)[0] for size in sizes]
    assert fitted_limit(sizes, took) == pytest.approx(
        limit(given, way, MACHINE), rel=0.05
    )


def test_the_formulas_have_their_published_values():
    # dense rows of 10^6 features, 0.8 ms each, with messages of 1 µs
    assert best_ranks(0.8e-3, 1e-6) == pytest.approx(555, rel=1e-3)
    assert best_ranks(0.8e-3, 1e-6, 8) == pytest.approx(8 * 555, rel=1e-3)
    assert best_rows(1e-6, 1e-9, 4, 256) == pytest.approx(45, rel=0.01)
    assert best_rows(20e-6, 1e-9, 4, 256) == pytest.approx(200, rel=0.01)
    # b + (s b² - b²)/2 words a step; the pairs of one minibatch are not sent
    assert step_words(8, 3) == 8 * 3 + 9 * 28


def test_columns_do_not_depend_on_those_made_with_them():
    for nonzeros in (0, 20):
        made = columns(4, 3000, nonzeros, 7)
        whole = np.asarray(made.make(slice(0, 3000)) @ np.eye(3000))
        for part in (slice(0, 1), slice(1000, 2100), slice(2999, 3000)):
            width = part.stop - part.start
            assert np.array_equal(made.make(part) @ np.eye(width), whole[:, part])
        assert not nonzeros or (np.count_nonzero(whole, axis=1) == nonzeros).all()


def test_a_gap_is_reached_by_columns_with_fewer_words():
    names = "L-BFGS, columns", "ProxCoCoA+, columns"
    last = [gap.points(name, 2, MACHINE)[-1] for name in names]
    assert all(row["gap"] <= gap.GAP for row in last)
    assert [row["rounds"] for row in last] == [12, last[1]["rounds"]]
    # halving and doubling: n + 2 words, for two ranks
    assert last[1]["words"] == last[1]["rounds"] * (gap.EXAMPLES + 2)
    assert gap.difference() < 1e-12


def test_the_run_folder_has_all_tables_and_a_figure(tmp_path, monkeypatch, capsys):
    names = {"SGD, rows": "SGD, columns", "ProxCoCoA+, columns": "ProxCoCoA+, columns"}
    chosen = {name: gap.METHODS[other] for name, other in names.items()}  # without JAX
    monkeypatch.setattr(gap, "METHODS", chosen)
    monkeypatch.setattr(gap, "UPDATES", 8)
    monkeypatch.setattr(gap, "ITERATIONS", 2)
    argv = ["dimensions.py", f"--out={tmp_path}", *SMALL]
    summary = dimensions.main(argv)
    check_folder(tmp_path, summary, "dimensions.svg")
    rows = read_rows(tmp_path)
    assert {row["table"] for row in rows} == tables.TABLES.keys()
    dense = [row for row in rows if row["table"] == "dense"]
    assert [row["p"] for row in dense] == [1, 2, 4, 8]
    assert [row["rank_bytes"] for row in dense] == [
        16 * 4096 // p * 4 + (4096 // p + 1) * 4 for p in (1, 2, 4, 8)
    ]
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines()[:-1])) <= 80  # the last line has a path
    assert "With 4,096 features, dense rows: 8 cores speed up a step" in out


@pytest.mark.parametrize(
    "flag, message",
    [
        ("--steps=0", "steps"),
        ("--batch=9", "--batch as a multiple of --steps and --groups, got 9, 4 and 2"),
        ("--p=8192", "at most 4096 cores and nonzero features"),
        ("--nonzeros=5000", "at most 4096 cores and nonzero features"),
        ("--alphas=0", "numbers above 0 in --alphas"),
        ("--p=0", "whole numbers from 1 to .* in --p"),
    ],
)
def test_bad_flags_are_refused_before_the_run_folder_is_made(tmp_path, flag, message):
    with pytest.raises(BadInput, match=message):
        dimensions.main(["dimensions.py", f"--out={tmp_path}", *SMALL, flag])
    assert not list(tmp_path.iterdir())
