import math

import cyclades
import numpy as np
import pytest
from studies.shared_memory import cyclades_measurements, cyclades_report
from studies.shared_memory.cyclades_measurements import bits, distinct_hubs
from studies.shared_memory.hogwild_runs import (
    PROBLEMS,
    SERIAL,
    Timing,
    no_extras,
    run_alternately,
)
from studies.shared_memory.sparse_flags import Defaults
from studies.shared_memory.sparse_runs import Task
from studies.shared_memory.sparse_strategies import Settings

from dml import sim
from dml.strategies.shared.workers import Descent
from dml.wire.comm import Metered
from tests.experiments.run_folder import check_folder, read_rows
from tests.strategies.shared.small import documents, ratings

SMALL = ["--bits=1,2,3", "--checked=8,32", "--batches=1,8,64", "--hubs=1,0.05"]
SMALL += ["--epochs=2", "--repeats=2", "--tried=1", "--late=3"]
MADE = {"svm": documents, "completion": ratings}
STATED = {
    "svm": Defaults(0.3, 0.8, 3, 16, hubs=0.05),
    "completion": Defaults(0.05, 0.9, 3, 16),
}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Put few documents and ratings in the place of those that are named."""

    def put(name):
        def task(seed):
            made = MADE[name](seed=seed)
            kernel, start = made.kernel, made.params
            return Task(
                kernel.model, lambda: (kernel.data, start, no_extras()), STATED[name]
            )

        monkeypatch.setitem(PROBLEMS, name, task)

    for name in MADE:
        put(name)


def run(out, *argv):
    given = [f"--out={out}", "--problems=svm,completion", *SMALL, *argv]
    (summary,) = cyclades.main(["cyclades.py", *given])
    rows = read_rows(out)
    return summary, lambda kind: [row for row in rows if row["kind"] == kind]


def test_a_run_leaves_four_tables_a_flat_summary_and_figures(tmp_path, capsys):
    summary, of = run(tmp_path)
    assert [len(of(kind)) for kind in ("bits", "sizes", "race", "step")] == [
        *(2 * 2 * 2, 2 * 2 * 3, 2 * 4, 2 * 4)
    ]
    assert all(row["equal"] for row in of("bits")) and summary["bits_equal"] is True
    check_folder(
        tmp_path, summary, "components.svg", "components.png", "throughput.svg"
    )
    assert all(isinstance(one, float | int | str) for one in summary.values())
    out = capsys.readouterr().out
    assert "ours: 8 of 8 equal, by 1,2,3 workers (bit for bit): holds" in out
    assert "largest step of cyclades divided by that of late 3: svm " in out
    races = of("race")
    assert {r["to_hogwild"] for r in races if r["strategy"] == "hogwild"} == {1.0}
    ours = {r["objective"] for r in races if r["strategy"] == "cyclades"}
    assert len(ours) == 2  # one a problem: on any workers the same


def test_rows_apart_change_the_bits_and_batches_the_order():
    problem = documents()

    def program(comm):
        given = Metered(comm), problem, STATED["svm"], 0
        return list(bits(*given, shares=[1.0, 0.05], batches=[8, 32], workers=[1, 2]))

    rows = sim.run(program, 1)[0]
    assert len({row["sha256"] for row in rows}) == 4
    assert [row["deferred"] > 0 for row in rows] == [False, False, True, True]


@pytest.mark.parametrize("wrong", [None, 2, 4])
def test_a_bit_that_differs_is_seen(monkeypatch, wrong):
    table = np.ones(9, np.float32)
    other = table.copy()
    other[4] = np.nextafter(other[4], 2)

    def turns(comm, problem, options, cases, *_):
        tables = [other if count == wrong else table.copy() for _, count in cases]
        return {
            case: [Timing(0.0, 0.0, one, None)]
            for case, one in zip(cases, tables, strict=True)
        }

    monkeypatch.setattr(cyclades_measurements, "run_alternately", turns)
    comm = sim.run(Metered, 1)[0]
    given = comm, documents(), STATED["svm"], 0
    (row,) = bits(*given, shares=[1.0], batches=[8], workers=[1, 2, 4])
    assert row["equal"] == (wrong is None)


def test_shares_that_mark_the_same_rows_are_one():
    assert [
        share for share, _ in distinct_hubs(documents(), [1.0, 0.99999, 0.9, 0.5])
    ] == [*(1.0, 0.99999)]


@pytest.mark.parametrize("limit", [0.011, 0.7, 1.0, 1.3, 900.0])
def test_the_largest_step_is_found_to_a_quarter(limit):
    seen = []

    def falls(rate):
        seen.append(rate)
        return rate <= limit

    rate, tries = cyclades_measurements.search(falls, 1.0)
    assert rate <= limit < 1.25 * rate
    assert tries == len(seen) == len(set(seen))
    assert tries <= 4 + abs(math.log2(limit))


@pytest.mark.parametrize("falls, rate", [(lambda _: False, 0), (lambda _: True, 2**29)])
def test_a_search_without_a_limit_ends(falls, rate):
    found, tries = cyclades_measurements.search(falls, 1.0)
    assert found >= rate and (found == 0) == (rate == 0)
    assert tries == cyclades_measurements.MAX_DOUBLINGS


def options(rate):
    return Settings(Descent(lambda epoch: rate), batch=16, hubs=0.05)


def fell(case, problem, rate):
    """Try one epoch at a rate, on one rank."""

    def program(comm):
        comm = Metered(comm)
        return cyclades_measurements.decreases(comm, problem, options(rate), case, 1)

    return sim.run(program, 1)[0]


@pytest.mark.parametrize("case", [SERIAL, ("cyclades", 2), ("late 3", 1)])
def test_a_step_that_diverges_does_not_fall(case):
    assert fell(case, ratings(), 0.05)
    assert not fell(case, ratings(), 1e6)


def test_a_norm_that_leaves_no_weights_does_not_fall(monkeypatch):
    refused = lambda *_: pytest.fail("was tried")  # noqa: E731
    monkeypatch.setattr(cyclades_measurements, "run_alternately", refused)
    assert not fell(SERIAL, documents(), 1e4)


def test_reads_that_are_not_late_have_the_bits_of_serial():
    cases = [SERIAL, ("late 0", 1), ("late 9", 1)]

    def program(comm):
        return run_alternately(Metered(comm), documents(), options(0.3), cases, 1, 2)

    for turns in sim.run(program, 1), sim.run(program, 2):
        serial, same, other = (turns[0][case][0].table for case in cases)
        assert np.array_equal(serial, same) and not np.array_equal(serial, other)


def test_largest_steps_are_compared_with_each_other_strategy():
    steps = {"serial": 9.0, "hogwild": 1.0, "cyclades": 2.0, "late 9": 0.5}
    rows = [
        {"kind": "step", "problem": "svm", "strategy": way, "rate": rate}
        for way, rate in steps.items()
    ]
    assert cyclades_report.step_ratios(rows, "hogwild") == {"svm": 2.0}
    assert cyclades_report.step_ratios(rows, "late 9") == {"svm": 4.0}
    assert cyclades_report.totals(rows)["svm_late_9_largest_step"] == 0.5
