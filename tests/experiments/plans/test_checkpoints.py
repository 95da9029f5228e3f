"""checkpoints.py: simulated clusters against the formula, tables, and bad input."""

import checkpoints
import numpy as np
import pytest
from lab.claims import HOLDS
from studies.checkpoints.failures import Job, sampled_seconds, virtual_seconds

from dml.runs import results
from dml.types import BadInput
from dml.wire.costs.checkpointing import Failures, best, expected_seconds
from tests.experiments.run_folder import read_rows

COSTS = [Failures(60, 120, 3600), Failures(1, 0, 100), Failures(5, 3, 8)]
SMALL = ["--segments=300", "--runs=200", "--draws=2000", "--width=8"]
SMALL += ["--batch=2", "--factors=0.5,1,2"]


@pytest.mark.parametrize("failures", COSTS)
@pytest.mark.parametrize("factor", (0.5, 1, 3))
def test_many_runs_take_the_expected_time_within_1_percent(failures, factor):
    job = Job(failures, factor * best(failures), segments=50)
    expected = expected_seconds(failures, job.interval, job.interval * job.segments)
    seconds = sampled_seconds(job, seed=1)
    assert seconds.mean() == pytest.approx(expected, rel=0.01)
    assert abs(seconds.mean() - expected) < 4 * seconds.std() / len(seconds) ** 0.5


@pytest.mark.parametrize("ranks", (1, 3))
def test_a_virtual_cluster_takes_the_expected_time_within_1_percent(ranks):
    failures = COSTS[0]
    job = Job(failures, best(failures), segments=20_000 // ranks)
    expected = expected_seconds(failures, job.interval, job.interval * job.segments)
    seconds = [virtual_seconds(job, ranks, seed) for seed in range(ranks)]
    assert np.mean(seconds) == pytest.approx(expected, rel=0.01)


def test_one_virtual_rank_takes_the_time_of_the_loop_over_events():
    for failures in COSTS:
        job = Job(failures, best(failures), segments=300)
        seconds = sampled_seconds(job, seed=(5, 0), runs=1)
        assert virtual_seconds(job, 1, seed=5) == pytest.approx(seconds[0], rel=1e-12)


@pytest.mark.parametrize("failures", COSTS)
def test_the_simulated_time_is_least_at_the_best_interval(failures):
    factors = (0.5, 1, 2)
    work, seconds = 40 * best(failures), []
    for factor in factors:
        interval = factor * best(failures)
        job = Job(failures, interval, round(work / interval))
        runs = sampled_seconds(job, seed=2, runs=4000)
        seconds.append(runs.mean() / (interval * job.segments))
    assert np.argmin(seconds) == 1


def test_tables_have_simulated_times_probabilities_and_overheads(undrawn, tmp_path):
    argv = ["--repeats=1", "--machines=9", f"--out={tmp_path}"]
    summary = checkpoints.main(["checkpoints.py", *SMALL, *argv])
    tables = {}
    for row in read_rows(tmp_path):
        tables.setdefault(row["table"], []).append(row)
    assert [row["formula"] for row in tables["formulas"]] == ["Young", "Daly", "exact"]
    for row in tables["intervals"]:
        assert row["sampled"] == pytest.approx(row["expected"], rel=0.05)
        assert row["virtual"] == pytest.approx(row["expected"], rel=0.2)
    for row in tables["recovery"]:
        assert row["probability"] == pytest.approx(row["enumerated"])
        assert row["formula"] is None  # 2 does not divide 9
    found = {row["mode"]: row for row in tables["overhead"]}
    assert found["synchronous"]["write"] == 0 < found["background"]["write"]
    for mode, row in found.items():
        work = max(row["write"], row["estimated"] / 0.035)
        assert row["work"] == pytest.approx(work)
        assert row["overhead"] == pytest.approx(row["added"] / work)
        assert summary[f"save_interval_{mode}"] == row["interval"]
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] != []


def test_the_claims_of_simulations_hold_and_that_of_a_measurement_is_untested(
    undrawn, tmp_path
):
    argv = ["--segments=6000", "--factors=0.5,1,2", "--runs=1000", "--draws=9000"]
    argv += ["--repeats=0", f"--out={tmp_path}"]
    checkpoints.main(["checkpoints.py", *argv])
    summary = results.read(tmp_path).summary
    for name in ("recovery", "expected_time", "best_interval"):
        assert summary[f"verdict_{name}"] == HOLDS
    assert summary["verdict_bounded"] == "not testable here"


@pytest.mark.parametrize(
    "flag, message",
    [
        ("--copies=17", "expected 1 to 16 copies on 16 ranks, got 17"),
        ("--factors=0", "expected numbers above 0 in --factors"),
        ("--mean=10", "means between failures, got .*; pass a larger --mean"),
        ("--restart=1e6", "means between failures, got .*; pass a larger --mean"),
    ],
)
def test_bad_input_is_refused_before_any_simulation(tmp_path, flag, message):
    with pytest.raises(BadInput, match=message):
        checkpoints.main(["checkpoints.py", f"--out={tmp_path / 'out'}", flag])
    assert not (tmp_path / "out").exists()
