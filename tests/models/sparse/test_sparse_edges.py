"""Linear models edge by edge, against dense descent and what bounds an optimum."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from dml.data.sparse.svmlight import generate
from dml.models.sparse import logistic_edges, svm
from dml.types import BadInput, Batch

EXAMPLES, FEATURES, LONGEST = 300, 40, 9
MU, RATE = 0.02, 0.4  # all is shrunk to a tenth in an epoch


# of the margin
LOSSES = {svm: lambda m: max(0, 1 - m)}
LOSSES[logistic_edges] = lambda m: np.logaddexp(0, -m)
SLOPES = {svm: lambda m: -1.0 if m < 1 else 0.0}
SLOPES[logistic_edges] = lambda m: -1 / (1 + np.exp(m))
# float32: sums of up to 9 terms, and a_t of up to 300 steps
TOLERANCES = {np.float32: 2e-5, np.float64: 1e-12}
models = pytest.mark.parametrize(
    "model", LOSSES, ids=lambda model: model.__name__.split(".")[-1]
)
dtypes = pytest.mark.parametrize("dtype", TOLERANCES)


def batch():
    """Rows of 0 to 9 features, labels that no hyperplane separates."""
    rng = np.random.default_rng(7)
    inputs = generate(EXAMPLES, FEATURES, LONGEST, seed=3).inputs
    inputs.data *= np.repeat(rng.uniform(0.5, 2, EXAMPLES), LONGEST)
    inputs.data *= rng.choice([-1, 0, 1], inputs.nnz, p=[0.3, 0.4, 0.3])
    inputs[[4, 9]] *= 0
    inputs.eliminate_zeros()
    return Batch(inputs, rng.choice(np.float32([-1, 1]), EXAMPLES))


BATCH = batch()
DENSE = BATCH.inputs.toarray().astype(np.float64)
LABELS = BATCH.targets.astype(np.float64)


def start(seed=0):
    return np.random.default_rng(seed).normal(size=FEATURES)


def rows_of(data, e):
    return data.edges.rows[data.edges.starts[e] : data.edges.starts[e + 1]]


def step(model, table, data, e, t, rate):
    """Take a step as workers do."""
    grads, rows = np.empty(LONGEST, table.dtype), rows_of(data, e)
    _, moves = model.gradient(table, data, e, t, grads)
    for s in range(len(rows) if moves else 0):
        model.move(table, int(rows[s]), grads, s, rate)
        table[rows[s]] += grads[s]


@models
@dtypes
def test_epochs_with_the_norm_as_a_scale_are_dense_descent(model, dtype):
    weights = start(1)
    table = weights.astype(dtype)
    data = model.documents(BATCH, MU, dtype)
    rng = np.random.default_rng(2)
    for rate, steps in ((RATE, EXAMPLES), (0.3 * RATE, 250)):  # the second is cut short
        data = model.with_rate(data, rate)
        for t, e in enumerate(rng.permutation(EXAMPLES)[:steps]):
            step(model, table, data, int(e), t, rate)
            margin = LABELS[e] * (DENSE[e] @ weights)
            weights = (1 - rate * MU) * weights
            weights -= rate * SLOPES[model](margin) * LABELS[e] * DENSE[e]
        model.settle(table, data, steps)
        # steps as large as these forget the start: errors do not add up
        near = TOLERANCES[dtype]
        np.testing.assert_allclose(table, weights, rtol=near, atol=near)


def single(model, values, label=1, mu=0.1, dtype=np.float32):
    inputs = csr_matrix(np.array([values]))
    return model.documents(Batch(inputs, np.float32([label])), mu, dtype)


@dtypes
def test_an_example_with_a_margin_of_one_is_on_its_side(dtype):
    data = single(svm, [2.0, 0.0], dtype=dtype)
    grads = np.full(1, np.nan, dtype)
    table = np.array([0.5, 3], dtype)
    assert svm.gradient(table, data, 0, 0, grads) == (0, False)
    assert np.isnan(grads[0])  # nothing is written
    table[0] = np.nextafter(dtype(0.5), dtype(0))
    loss, moves = svm.gradient(table, data, 0, 0, grads)
    assert moves and 0 < loss < 1e-6 and grads[0] == -2


@models
@pytest.mark.parametrize("label", (-1, 1))
def test_an_example_without_features_has_the_loss_of_zero(model, label):
    data = single(model, [0.0, 0.0], label)
    loss, _ = model.gradient(np.float32([5, 7]), data, 0, 0, np.empty(0, np.float32))
    assert loss == pytest.approx(float(LOSSES[model](0.0)), rel=1e-6)


@models
@pytest.mark.parametrize("sign", (-1, 1))
def test_scores_however_large_overflow_nothing(model, sign):
    data, table = single(model, [1.0], mu=0.0), np.float32([sign * 1e6])
    grads = np.empty(1, np.float32)
    loss, moves = model.gradient(table, data, 0, 0, grads)
    want = 0 if sign > 0 else 1e6
    assert loss == pytest.approx(want, rel=2e-6, abs=0)
    assert model.objective(table, data) == pytest.approx(loss, rel=1e-6)
    assert not moves or grads[0] == (sign - 1) / 2
    model.with_rate(data, 1e9)  # no norm, any rate


@models
@pytest.mark.parametrize(
    "rate, mu", [(-1, 0.1), (1, -0.1), (10, 0.1), (3, 1), (2.6, 0.1), (np.nan, 0.1)]
)
def test_a_rate_that_leaves_nothing_of_the_weights_is_bad_input(model, rate, mu):
    data = model.documents(BATCH, mu)
    with pytest.raises(BadInput, match=f"epoch of 300 .* got rate={rate:g} .* pass"):
        model.with_rate(data, rate)
    model.with_rate(model.documents(BATCH, 0.1), 2.3)  # the strongest that is allowed


@models
@pytest.mark.parametrize("mu, labels", [(0.0, BATCH.targets), (MU, np.ones(EXAMPLES))])
def test_where_there_is_no_optimum_none_is_looked_for(model, mu, labels):
    data = model.documents(BATCH._replace(targets=labels), mu)
    with pytest.raises(BadInput, match=f"expected a norm and .* got mu={mu:g} and lab"):
        model.optimum(data, FEATURES)


def test_the_optimum_is_as_low_as_the_dual_allows_and_of_the_log_loss_has_no_slope():
    data = svm.documents(BATCH, MU, np.float64)
    signed = LABELS[:, None] * DENSE / EXAMPLES

    def negative_dual(shares):  # at most the least objective, for any shares in [0, 1]
        weights = shares @ signed / MU
        value = shares.mean() - 0.5 * MU * weights @ weights
        return -value, signed @ weights - 1 / EXAMPLES

    limits = {"maxiter": 2000, "ftol": 0, "gtol": 1e-8}
    at, bounds = np.full(EXAMPLES, 0.5), [(0, 1)] * EXAMPLES
    found = minimize(negative_dual, at, jac=True, bounds=bounds, options=limits)
    least = svm.objective(svm.optimum(data, FEATURES), data)
    assert -found.fun <= least <= -found.fun * (1 + 1e-4)
    data = logistic_edges.documents(BATCH, MU, np.float64)
    best = logistic_edges.optimum(data, FEATURES)
    slopes = SLOPES[logistic_edges](LABELS * (DENSE @ best)) * LABELS
    slope = slopes @ DENSE / EXAMPLES + MU * best
    # strong convexity: the gap is at most slope² / 2 μ
    assert np.square(slope).sum() / (2 * MU) < 1e-12
    inputs = csr_matrix(np.float32([[1], [2], [-3], [0], [0]]))
    sides = Batch(inputs, np.float32([1, -1, -1, 1, -1]))
    assert svm.accuracy(np.float32([2]), sides) == 3 / 5


@models
def test_the_optimum_has_the_dtype_of_its_data(model):
    found, wide = (
        model.optimum(model.documents(BATCH, MU, dtype), FEATURES)
        for dtype in (np.float32, np.float64)
    )
    assert found.dtype == np.float32 and wide.dtype == np.float64
    np.testing.assert_allclose(found, wide, atol=1e-3)
