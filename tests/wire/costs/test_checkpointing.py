"""Expected times and intervals of checkpoints: minima, limits and orders."""

import math

import pytest
from scipy.special import lambertw

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
