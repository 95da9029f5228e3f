"""Times and intervals of checkpoints: formulas, minima and simulated clusters."""

import math

import numpy as np
import pytest
from scipy.special import lambertw
from studies.checkpoints.failures import Job, sampled_seconds, virtual_seconds

from dml.types import BadInput
from dml.wire.costs.checkpointing import (
    INTERVALS,
    Failures,
    best,
    check_failures,
    daly,
    expected_seconds,
    young,
)

COSTS = [Failures(60, 120, 3600), Failures(1, 0, 100), Failures(5, 3, 8)]


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
        seconds = sampled_seconds(job, seed=(5, 0), lanes=1)
        assert virtual_seconds(job, 1, seed=5) == pytest.approx(seconds[0], rel=1e-12)


@pytest.mark.parametrize("failures", COSTS)
def test_the_simulated_time_is_least_at_the_best_interval(failures):
    factors = (0.5, 0.75, 1, 4 / 3, 2)
    work, seconds = 40 * best(failures), []
    for factor in factors:
        interval = factor * best(failures)
        job = Job(failures, interval, round(work / interval))
        runs = sampled_seconds(job, seed=2, lanes=20_000)
        seconds.append(runs.mean() / (interval * job.segments))
    assert np.argmin(seconds) == 2


@pytest.mark.parametrize("checkpoint", (1e-4, 1, 60, 1000, 5000))
def test_the_best_interval_is_lamberts_function_and_a_minimum(checkpoint):
    failures = Failures(checkpoint, 100, 1000)
    interval = best(failures)
    branch = lambertw(-math.exp(-checkpoint / 1000 - 1)).real
    assert interval == pytest.approx(1000 * (1 + branch), rel=1e-6)
    least = expected_seconds(failures, interval, 1)
    for factor in (0.9, 0.99, 1.01, 1.1):
        assert expected_seconds(failures, factor * interval, 1) > least


def test_the_orders_of_young_and_daly_are_1_and_3():
    """Errors relative to √(δ/2M): the next terms are of order 1 and 3."""
    for choose, order in ((young, 1), (daly, 3)):
        errors = []
        for root in (0.1, 0.05):
            failures = Failures(2 * root**2, 0, 1)
            errors.append(abs(choose(failures) / best(failures) - 1))
        assert math.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.25)
    assert daly(Failures(9, 0, 4)) == 4
    assert set(INTERVALS) == {"Young", "Daly", "exact"}


def test_without_failures_the_time_is_work_and_checkpoints():
    seconds = expected_seconds(Failures(2, 5, 1e12), 8, 80)
    assert seconds == pytest.approx(100)


@pytest.mark.parametrize("costs", [(0, 1, 1), (1, -1, 1), (1, 1, 0)])
def test_costs_out_of_range_are_refused(costs):
    with pytest.raises(BadInput, match="expected a checkpoint and a mean above 0 s"):
        check_failures(Failures(*costs))
