"""ProxCoCoA+ finds scikit-learn's optima of norms L1 and L2, on any number of ranks."""

import numpy as np
import pytest
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression

from dml.models.linear.problem import linear
from dml.strategies.linear.lbfgs import lbfgs
from dml.strategies.linear.prox_cocoa import prox_cocoa
from dml.wire.collectives import ALLREDUCE
from tests.strategies.linear.small import EXAMPLES, refusals, table, train

L1 = 0.02


def objective(x, y, loss, l2, params, l1=L1):
    value = linear(x, y, loss, l2).evaluate(params)["objective"]
    return value + l1 * np.abs(params).sum()


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_the_optimum_of_least_squares_is_that_of_lasso(size, kind):
    x, y = table(kind)
    peer = Lasso(alpha=L1, fit_intercept=False, tol=1e-14, max_iter=10**6).fit(x, y)
    given = x, y, "squared", 0.0
    params, steps, _ = train(prox_cocoa, size, given, range(150), l1=L1, passes=5)
    best = objective(x, y, "squared", 0.0, peer.coef_)
    found = objective(x, y, "squared", 0.0, params)
    assert abs(found - best) < 1e-6 * best
    assert 3 < np.count_nonzero(params) < len(params) - 3
    assert np.array_equal(params != 0, np.abs(peer.coef_) > 1e-9)
    objectives = [step.measures["objective"] for step in steps]
    assert objectives[-1] == pytest.approx(found, rel=1e-12)
    assert np.diff(objectives).max() < 1e-14  # an upper bound descends in each round


def test_both_norms_are_those_of_elastic_net():
    x, y = table()
    l2 = 0.05
    peer = ElasticNet(
        alpha=L1 + l2,
        l1_ratio=L1 / (L1 + l2),
        fit_intercept=False,
        tol=1e-14,
        max_iter=10**6,
    ).fit(x, y)
    params, *_ = train(prox_cocoa, 3, (x, y, "squared", l2), range(100), l1=L1)
    best = objective(x, y, "squared", l2, peer.coef_)
    assert objective(x, y, "squared", l2, params) <= best * (1 + 1e-6)


def test_the_optimum_of_logistic_regression_with_l1_is_that_of_scikit_learn():
    x, y = table()
    peer = LogisticRegression(
        l1_ratio=1,
        C=1 / (EXAMPLES * L1),
        solver="liblinear",
        fit_intercept=False,
        tol=1e-10,
        max_iter=10**5,
    ).fit(x, y)
    given = x, y, "logistic", 0.0
    params, *_ = train(prox_cocoa, 3, given, range(300), l1=L1, passes=3)
    best = objective(x, y, "logistic", 0.0, peer.coef_.ravel())
    assert objective(x, y, "logistic", 0.0, params) <= best * (1 + 1e-6)


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_without_l1_the_optimum_is_that_of_lbfgs(loss):
    x, y = table("sparse")
    given = x, y, loss, 0.1
    best = train(lbfgs, 2, given, range(100))[1][-1].measures["objective"]
    steps = train(prox_cocoa, 2, given, range(300), passes=2)[1]
    assert steps[-1].measures["objective"] == pytest.approx(best, rel=1e-8)


def test_an_iteration_is_one_all_reduce_of_the_margins_for_any_number_of_passes():
    x, y = table()
    given, allreduce = (x, y, "squared", 0.0), ALLREDUCE["butterfly"]
    for passes in (1, 4):
        own = {"l1": L1, "passes": passes, "allreduce": allreduce}
        _, steps, sent = train(prox_cocoa, 4, given, range(5), **own)
        assert [step.words_sent for step in steps] == [2 * (EXAMPLES + 2)] * 5
        assert sent[0] == (2 * 5, 2 * 5 * (EXAMPLES + 2) * 8)


def test_features_that_are_zero_or_constant_keep_finite_parameters():
    x, y = table()
    x = np.column_stack([np.ones(EXAMPLES), np.zeros(EXAMPLES), x[:, :3]])
    params, *_ = train(prox_cocoa, 2, (x, y, "squared", 0.0), range(100), l1=L1)
    peer = Lasso(alpha=L1, fit_intercept=False, tol=1e-14, max_iter=10**6).fit(x, y)
    assert params == pytest.approx(peer.coef_, abs=1e-6) and params[1] == 0


def test_bad_input_is_refused_on_every_rank():
    x, y = table()
    for own, message in (
        ({"l1": -1.0}, "for l1 of prox_cocoa, got -1.0"),
        ({"passes": 0}, "for passes of prox_cocoa, got 0"),
    ):
        refused = refusals(prox_cocoa, 2, (x, y, "squared", 0.0), range(2), **own)
        assert len(refused) == 2 and message in refused[1]
    many = refusals(prox_cocoa, 34, (x, y, "squared", 0.0), range(2))
    assert len(many) == 34 and "a feature or more for each of 34 ranks" in many[33]
