from functools import partial

import hogwild
import numpy as np
import pytest
from studies.shared_memory import hogwild_measurements, hogwild_report, hogwild_runs
from studies.shared_memory.hogwild_runs import (
    DENSE,
    PROBLEMS,
    SERIAL,
    SPARSE,
    hypergraph,
    no_extras,
    run_alternately,
    settings,
    speedup,
)
from studies.shared_memory.sparse_flags import Defaults
from studies.shared_memory.sparse_runs import Task

from dml import sim
from dml.types import BadInput
from dml.wire.comm import Metered
from tests.experiments.run_folder import check_folder, read_rows, read_summary
from tests.strategies.shared.small import documents

SMALL = ["--epochs=2", "--repeats=2", "--delays="]
STATED = Defaults(0.3, 0.8, 3, 16)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Put few documents in the place of every problem."""

    def newsgroups(seed):
        made = documents(seed=seed)
        data, start = made.kernel.data, made.params
        return Task(made.kernel.model, lambda: (data, start, no_extras()), STATED)

    monkeypatch.setattr(hogwild_runs, "HYPERGRAPH", (200, 200, 4))
    monkeypatch.setattr(hogwild_measurements, "TIMING_SECONDS", 0.01)
    monkeypatch.setitem(PROBLEMS, "svm", newsgroups)
    monkeypatch.setitem(PROBLEMS, SPARSE, partial(hypergraph, 0.05))
    monkeypatch.setitem(PROBLEMS, DENSE, partial(hypergraph, 1.0))


def run(out, *argv):
    given = [f"--out={out}", "--problems=svm", *SMALL, *argv]
    (summary,) = hogwild.main(["hogwild.py", *given])
    return summary, read_rows(out)


def test_a_race_leaves_two_tables_a_flat_summary_and_figures(tmp_path, capsys):
    more = "--problems=svm,sparse,dense", "--delays=0,3"
    summary, rows = run(tmp_path, *more)
    assert len(rows) == 3 * (1 + 2 * 3) + 2 * 3
    check_folder(tmp_path, summary, "speedup.svg", "speedup.png", "delays.svg")
    assert all(isinstance(one, float | int | str | None) for one in summary.values())
    assert summary["svm_locked_2_speedup"] == rows[5]["speedup"]
    rhos = {row["problem"]: row["rho"] for row in rows if row["kind"] == "race"}
    assert rhos[SPARSE] == 0.05 and rhos[DENSE] == 1
    assert "\nround robin has 90% of hogwild's speed " in capsys.readouterr().out
    verdict = read_summary(tmp_path)["verdict_threefold"]
    assert verdict == "not testable here"  # 2 workers


def test_a_delay_is_what_a_gradient_takes_longer(tmp_path, undrawn):
    _, rows = run(tmp_path, "--delays=0,200", "--updates=hogwild")
    short, long = (row["gradient_us"] for row in rows if row["kind"] == "delay")
    assert long - short > 100  # others may take the core: rather longer than shorter
    assert short < 50


def test_the_first_examples_are_a_problem_of_their_own():
    whole = documents()
    few = hogwild_measurements.limit_examples(whole, 20)
    assert len(few.kernel.data.edges.starts) == 21
    assert few.kernel.data.edges.starts[-1] == whole.kernel.data.edges.starts[20]
    everything = hogwild_measurements.limit_examples(whole, 10**6)
    assert len(everything.kernel.data.edges.starts) == 201


def test_each_turn_has_the_same_rates():
    rate = settings(STATED, 3, seed=0).update.rate
    assert [rate(epoch) for epoch in range(1, 8)] == pytest.approx(
        [0.3, 0.24, 0.192] * 2 + [0.3]
    )


def test_one_worker_is_rank_0_alone_while_others_sleep():
    problem, options = documents(), settings(STATED, 2, seed=0)
    cases = [SERIAL, ("hogwild", 2), ("hogwild", 4)]

    def program(comm):
        return run_alternately(Metered(comm), problem, options, cases, 2, 2)

    first, second = sim.run(program, 2)
    assert [len(first[case]) for case in cases] == [2, 2, 2]
    assert [len(second[case]) for case in cases] == [0, 2, 2]
    (alone,) = sim.run(program, 1)
    for turn in (0, 1):
        assert np.array_equal(first[SERIAL][turn].table, alone[SERIAL][turn].table)
    assert speedup(first[SERIAL], first[SERIAL]) == 1


def test_workers_that_ranks_cannot_share_evenly_are_refused():
    problem, options = documents(), settings(STATED, 2, seed=0)

    def program(comm):
        return run_alternately(Metered(comm), problem, options, [("hogwild", 3)], 1, 1)

    with pytest.raises(BadInput, match="a multiple of 2 ranks, got 3"):
        sim.run(program, 2)


@pytest.mark.parametrize(
    "ys, found",
    [
        ([0.1, 0.5, 1.0], 10**1.8),
        ([0.1, 0.9, 1.0], 10),
        ([1.0, 0.4, 0.9], 100),  # it was level before by chance
        ([0.9, 1.0, 1.1], None),
        ([0.1, 0.2, 0.8], None),
    ],
)
def test_round_robin_is_level_where_its_line_crosses(ys, found):
    at = hogwild_report.crossing([1, 10, 100], ys, 0.9)
    assert at == (found and pytest.approx(found))
