"""Searches for the factor of an attack that moves the estimate farthest."""

import math
from functools import partial

import numpy as np
import pytest

from dml.wire.reducers.robust import (
    Slice,
    bulyan,
    estimate,
    geometric_median,
    krum,
    median,
    nnm,
    trimmed_mean,
)
from dml.wire.reducers.robust.attacks import byzantine
from dml.wire.reducers.robust.search import TRIALS, farthest, line_search

N, F, D = 11, 2, 60


@pytest.mark.parametrize("best", [0.0, 0.3, 0.9, 7.0, 14.0, 95.0, 3000.0])
def test_the_best_factor_is_found_at_any_scale_by_a_fixed_number_of_trials(best):
    tried = []

    def deviation(factor):
        tried.append(factor)
        return -abs(factor - best)

    found = farthest(deviation)
    assert len(tried) == len(set(tried)) == TRIALS and min(tried) >= 0
    assert math.isclose(found, best, rel_tol=0.1, abs_tol=0.01)


def test_a_peak_below_a_plateau_of_large_factors_is_found():
    # a rule rejects large factors, and its deviation is then 0.5
    assert 0.9 < farthest(lambda factor: factor if factor < 1.1 else 0.5) < 1.1
    assert farthest(lambda factor: factor if factor < 3 else math.nan) > 2.5
    assert farthest(lambda factor: -abs(factor - 7) if factor else math.nan) > 6.5


def test_factors_are_doubled_while_the_deviation_grows_and_small_scales_remain():
    tried = []

    def deviation(best, factor):
        tried.append(factor)
        return -abs(factor - best)

    farthest(partial(deviation, 100))
    doubled, scales = [0, 10, 20, 40, 80, 160], [5, 2.5, 1.25, 0.625, 0.3125]
    assert tried[:11] == doubled + scales
    tried.clear()
    farthest(partial(deviation, 1e9))
    assert sorted(tried)[1:6] == scales[::-1]


@pytest.mark.parametrize(
    "best, steps",
    [
        (0, [0, 10, 8, 6.4, 5.12]),  # 0 remains the best one
        (29, [0, 10, 30, 70, 62, 55.6]),  # 30 is better than 10, 70 is not
        (36, [0, 10, 30, 70, 62, 55.6, 50.48, 46.384, 43.1072, 40.48576, 48.874368]),
    ],
)
def test_a_line_search_doubles_steps_and_shrinks_them_after_the_first_failure(
    best, steps
):
    tried = []

    def deviation(factor):
        tried.append(factor)
        return -abs(factor - best)

    line_search(deviation, 0.8)
    assert len(tried) == TRIALS
    np.testing.assert_allclose(tried[: len(steps)], steps)


RULES = {
    "median": (median(F),),
    "trimmed_mean+nnm": (trimmed_mean(F), nnm),
    "bulyan": (bulyan(F),),
    "geometric_median+nnm": (geometric_median(F), nnm),
    "krum": (krum(F),),
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("attack", ["alie", "ipm"])
def test_an_optimal_attack_is_nearly_as_far_as_the_farthest_of_a_fine_grid(
    attack, name
):
    rule, *before = RULES[name]
    rows = np.random.default_rng(1).standard_normal((N, D)).astype(np.float32) + 0.1
    mean = rows[:-F].mean(axis=0, dtype=np.float64)

    def deviation(text):
        made, forged, estimates = byzantine(text, F), rows.copy(), []

        def estimated(rows):
            estimates.append(estimate(rule, rows, *before))
            return estimates[-1]

        workers = made.workers(N)
        made.attack.forge(Slice(forged, workers, 0, lambda total: total, estimated))
        tried = [np.linalg.norm(each - mean) for each in estimates]
        sent = np.linalg.norm(estimated(forged) - mean)
        assert sent == max([sent, *tried])
        return sent

    largest = max(deviation(f"{attack}:{x:.4f}") for x in np.geomspace(0.1, 100, 60))
    found = deviation(f"optimal_{attack}")
    assert found > (0.7 if name == "krum" else 0.95) * largest
    assert found > 0.99 * deviation(f"optimal_{attack}:0.8")
