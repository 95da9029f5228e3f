"""Vector-free L-BFGS finds scikit-learn's optima, with two all-reduces an iteration."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC

from dml.models.linear.problem import linear
from dml.strategies.linear.lbfgs import Line, lbfgs, search
from dml.wire.collectives import ALLREDUCE
from dml.wire.costs.linear import lbfgs_words
from tests.strategies.linear.small import EXAMPLES, LOSSES, refusals, table, train

L2 = 1e-2
PEERS = {
    "logistic": LogisticRegression(
        C=1 / (EXAMPLES * L2), fit_intercept=False, tol=1e-12, max_iter=10_000
    ),
    # the squared hinge by default
    "squared_hinge": LinearSVC(
        C=1 / (EXAMPLES * L2), fit_intercept=False, tol=1e-10, max_iter=10**6
    ),
    "squared": Ridge(alpha=EXAMPLES * L2, fit_intercept=False),
}


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_objective_is_that_of_scikit_learn(kind, loss):
    x, y = table(kind)
    expected = PEERS[loss].fit(x, y).coef_.ravel()
    params, steps, _ = train(lbfgs, 3, (x, y, loss, L2), range(150))
    objective = linear(x, y, loss, L2).evaluate
    found, best = objective(params)["objective"], objective(expected)["objective"]
    assert found <= best * (1 + 1e-8)
    assert steps[-1].measures["objective"] == pytest.approx(found, rel=1e-12)
    objectives = [step.measures["objective"] for step in steps]
    assert np.diff(objectives).max() < 1e-12


@pytest.mark.parametrize("size", [1, 2, 5])
def test_every_number_of_ranks_has_the_same_iterations(size):
    x, y = table()
    given = x, y, "logistic", L2
    expected, wanted, _ = train(lbfgs, 3, given, range(8), pairs=3)
    params, steps, _ = train(lbfgs, size, given, range(8), pairs=3)
    assert np.abs(params - expected).max() < 1e-12
    assert [s.measures["trials"] for s in steps] == [
        s.measures["trials"] for s in wanted
    ]


def test_the_iterations_are_those_of_the_recursion_on_vectors():
    x, y = table()
    given, m = (x, y, "logistic", L2), 3
    slope = linear(*given).gradient
    rows, pairs, points = np.arange(EXAMPLES), [], [np.zeros(x.shape[1])]
    steps = [train(lbfgs, 2, given, range(n), pairs=m)[0] for n in range(1, 8)]
    points += steps
    gradients = [slope(w, rows)[1] + 0 for w in points]
    for number in range(len(points) - 1):
        q, alphas = gradients[number].copy(), []
        for s, v in reversed(pairs[-m:]):
            alphas.append(s @ q / (s @ v))
            q -= alphas[-1] * v
        if pairs:
            s, v = pairs[-1]
            q *= s @ v / (v @ v)
        for (s, v), alpha in zip(pairs[-m:], reversed(alphas), strict=True):
            q += (alpha - v @ q / (s @ v)) * s
        step = points[number + 1] - points[number]
        cosine = -step @ q / np.linalg.norm(step) / np.linalg.norm(q)
        assert cosine == pytest.approx(1, abs=1e-12)
        pairs.append((step, gradients[number + 1] - gradients[number]))


def test_an_iteration_is_two_all_reduces_for_any_number_of_trials():
    x, y = table()
    allreduce, lengths, pairs = ALLREDUCE["butterfly"], [], 3

    def counting(comm, buffer, op):
        lengths.append(len(buffer) if comm.rank == 0 else None)
        allreduce(comm, buffer, op)

    given = x, y, "squared_hinge", L2
    _, steps, _ = train(lbfgs, 4, given, range(6), pairs=pairs, allreduce=counting)
    own = [length for length in lengths if length]
    assert len(own) == 2 * len(steps)
    for number, (terms, products) in enumerate(zip(own[::2], own[1::2], strict=True)):
        known = min(number, pairs)
        assert terms == (3 * (2 * known + 1) if number else 1)
        assert terms <= (2 * pairs + 1) ** 2
        assert products == EXAMPLES + 2
        if number:
            assert terms + products == lbfgs_words(EXAMPLES, known)
        assert steps[number].words_sent == 2 * (terms + products)
    assert max(step.measures["trials"] for step in steps) > 3


@pytest.mark.parametrize("loss", LOSSES)
def test_a_line_is_the_objective_along_a_direction_and_its_slope(loss):
    x, y = table()
    w, d = np.random.default_rng(1).standard_normal((2, x.shape[1])) * 0.1
    problem, norms = linear(x, y, loss, 0.7), (w @ w, w @ d, d @ d)
    line = Line(problem.products, x @ w, x @ d, norms)
    for t in (0.0, 0.3, 2.0):
        assert line.value(t) == pytest.approx(problem.evaluate(w + t * d)["objective"])
        slope = problem.gradient(w + t * d, np.arange(EXAMPLES))[1] @ d
        assert line.slope(t) == pytest.approx(slope, rel=1e-12)


@pytest.mark.parametrize("optimum", [1e-3, 0.7, 40.0])
def test_a_line_search_ends_where_the_slope_is_flat(optimum):
    length, _ = search(lambda t: np.sinh(t - optimum) if t < 100 else np.inf)
    assert abs(np.sinh(length - optimum)) <= 0.1 * np.sinh(optimum)


def test_features_that_are_constant_or_zero_are_trained():
    x, y = table()
    x = np.column_stack([np.ones(EXAMPLES), np.zeros(EXAMPLES), x[:, :3]])
    params, *_ = train(lbfgs, 2, (x, y, "logistic", L2), range(40))
    objective = linear(x, y, "logistic", L2)
    rows = np.arange(EXAMPLES)
    best = minimize(
        lambda w: objective.evaluate(w)["objective"],
        np.zeros(5),
        jac=lambda w: objective.gradient(w, rows)[1],
        tol=1e-12,
    )
    assert params == pytest.approx(best.x, abs=1e-6) and params[1] == 0
    _, steps, _ = train(lbfgs, 2, (np.zeros((60, 4)), y, "logistic", L2), range(40))
    assert len(steps) == 1 and steps[0].loss == pytest.approx(np.log(2))


def test_bad_input_is_refused_on_every_rank():
    x, y = table()
    many = refusals(lbfgs, 34, (x, y, "logistic", L2), range(2))
    assert len(many) == 34 and "a feature or more for each of 34 ranks" in many[0]
    none = refusals(lbfgs, 2, (x, y, "logistic", L2), range(2), pairs=0)
    assert len(none) == 2 and "for pairs of lbfgs, got 0" in none[0]
