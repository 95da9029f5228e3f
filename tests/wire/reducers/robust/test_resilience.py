"""What all rules guarantee: small errors under attacks, and one policy for NaN."""

from itertools import combinations

import numpy as np
import pytest

from dml.types import BadInput
from dml.wire.reducers.makers import RULES
from dml.wire.reducers.robust import (
    bulyan,
    clipping,
    estimate,
    geometric_median,
    krum,
    mda,
    mean,
    median,
    nnm,
    trimmed_mean,
)
from tests.wire.reducers.robust.small import (
    BY_COLUMN,
    BY_LENGTH,
    ROBUST,
    attacked,
    estimate_of_sum,
    normal,
)


def converged(faulty):
    """Return the geometric median; three rounds have no such bound."""
    return geometric_median(faulty, rounds=300, smoothing=1e-7)


# κ of Allouah 2023, table 1; that of MDA follows from the triangle inequality
KAPPA = {
    median: lambda n, f: 4 * (1 + f / (n - 2 * f)) ** 2,
    trimmed_mean: lambda n, f: 6 * f / (n - 2 * f) * (1 + f / (n - 2 * f)),
    krum: lambda n, f: 6 * (1 + f / (n - 2 * f)),
    converged: lambda n, f: 4 * (1 + f / (n - 2 * f)) ** 2,
    mda: lambda n, f: 8 * f * f / (n - f),
}


@pytest.mark.parametrize("make", KAPPA, ids=lambda make: make.__name__)
@pytest.mark.parametrize("before", ((), (nnm,)), ids=("alone", "nnm"))
def test_errors_are_at_most_kappa_times_the_variance_of_any_honest_subset(make, before):
    """All subsets of n-f vectors: any of them may be the honest ones."""
    worst = 0.0
    for count, faulty in ((5, 1), (7, 2), (8, 2)):
        kappa = KAPPA[make](count, faulty)
        if before:
            kappa = 8 * faulty / (count - faulty) * (kappa + 1)
        subsets = [list(s) for s in combinations(range(count), count - faulty)]
        for seed in range(28):
            rows = attacked(count, faulty, 1 + seed % 3, seed)
            found = estimate(make(faulty), rows, *before).astype(float)
            for honest in (rows[subset].astype(float) for subset in subsets):
                mean_of_honest = honest.mean(axis=0)
                variance = ((honest - mean_of_honest) ** 2).sum() / len(honest)
                error = ((found - mean_of_honest) ** 2).sum()
                rounding = 1e-11 * (honest**2).sum() + 1e-14
                assert error <= kappa * variance + rounding
                worst = max(worst, error / (variance + rounding))
    assert worst > 0.2  # the cases are not harmless


def test_the_mean_has_no_bound():
    rows = normal(7, 3)
    rows[6] = 1e6
    assert np.abs(estimate(mean(1), rows)).min() > 1e5


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize(
    "before", ((), (nnm,), (clipping,)), ids=("", "nnm", "clipping")
)
def test_vectors_that_are_not_finite_are_dropped_and_f_decreases(name, before):
    rows = normal(11, 40)
    for bad in ([3], [0, 10]):
        for value in (np.nan, np.inf, -np.inf):
            sent = rows.copy()
            sent[bad, 7] = value
            kept = np.delete(rows, bad, axis=0)
            expected = estimate(RULES[name](2 - len(bad)), kept, *before)
            found = estimate(RULES[name](2), sent, *before)
            assert found.tobytes() == expected.tobytes()


def test_without_tolerated_attackers_no_vector_is_dropped():
    rows = normal(5, 4)
    rows[2, 1] = np.nan
    for rule in (mean(0), trimmed_mean(0)):
        assert np.isnan(estimate(rule, rows)).tolist() == [False, True, False, False]


def test_the_estimate_is_nan_if_too_few_vectors_are_finite():
    rows = normal(5, 4)
    rows[:4] = np.nan
    assert np.isnan(estimate(krum(1), rows)).all()
    rows[:] = np.nan
    assert np.isnan(estimate(median(1), rows)).all()


@pytest.mark.parametrize("name", ROBUST)
@pytest.mark.parametrize("value", (1e30, -1e30, 3e38, 0.0))
def test_estimates_stay_near_honest_vectors(name, value):
    rows = normal(11, 60) + 1
    honest = rows[:9].mean(axis=0, dtype=float)
    spread = np.sqrt(((rows[:9] - honest) ** 2).sum(axis=1)).max()
    rows[9:] = value
    found = estimate_of_sum(RULES[name](2), rows / 11)
    assert np.sqrt(((found - honest) ** 2).sum()) < 2 * spread


@pytest.mark.parametrize("name", RULES)
def test_the_order_of_workers_does_not_matter(name):
    """With f < 3 Bulyan's last scores are distances of pairs, which are equal."""
    rows = normal(15, 300)
    order = np.random.default_rng(0).permutation(15)
    found = estimate(RULES[name](3), rows)
    permuted = estimate(RULES[name](3), rows[order])
    if name in BY_COLUMN or name in ("krum", "bulyan"):
        assert found.tobytes() == permuted.tobytes()
    else:
        np.testing.assert_allclose(found, permuted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", RULES)
def test_vectors_may_be_empty_and_equal(name):
    assert estimate(RULES[name](1), normal(7, 0)).shape == (0,)
    rows = np.repeat(normal(1, 50), 7, axis=0)
    if name not in (*BY_LENGTH, "sign_majority"):
        np.testing.assert_allclose(estimate(RULES[name](1), rows), rows[0], rtol=1e-6)


@pytest.mark.parametrize(
    "rule, count, bound",
    (
        (krum(3), 8, r"n >= 2f\+3 = 9 workers with krum:3, got 8"),
        (bulyan(2), 10, r"n >= 4f\+3 = 11 workers with bulyan:2, got 10"),
        (median(2), 4, r"n >= 2f\+1 = 5 workers with median:2, got 4"),
        (krum(0), 2, r"n >= 3 workers with krum:0, got 2"),
        (mean(2), 2, r"n >= f\+1 = 3 workers with mean:2, got 2"),
    ),
)
def test_too_few_vectors_are_refused_with_the_bound(rule, count, bound):
    with pytest.raises(BadInput, match=bound):
        estimate(rule, normal(count, 3))
    estimate(rule, normal(count + 1, 3))
