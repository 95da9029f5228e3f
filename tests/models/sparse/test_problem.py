"""Minibatch gradients of every sparse model, in float64, against finite differences."""

import numpy as np
import pytest

from dml.data.images.digits import digits
from dml.data.sparse.graphs import generate as graph
from dml.data.sparse.ratings import generate as ratings
from dml.data.sparse.svmlight import generate
from dml.models.sparse import (
    completion,
    cuts,
    dropout,
    factors,
    logistic,
    logistic_edges,
    svm,
)
from dml.models.sparse.problem import descend, problem
from dml.types import Batch

WIDE, STEP = np.float64, 1e-5


def documents(model):
    data = model.documents(generate(80, 25, 6, 0), 0.3, WIDE)
    return problem(model, data, np.zeros(25))


def completed():
    data = completion.entries_from_ratings(ratings(9, 7, 50, 2, 0)[0], 0.3, 0.7, WIDE)
    data = data._replace(weights=np.linspace(1, 2, len(data.targets)))
    return problem(completion, data, np.zeros((16, 4)))


def parted():
    data = cuts.cuts(graph((4, 5), 3, 0, 1.0), 0, WIDE)
    return problem(cuts, data, np.zeros((20, 3)))


def factored():
    return factors.problem(*ratings(9, 7, 50, 3, 0), 4, 0.1, seed=0)


def classified():
    return logistic.problem(generate(70, 40, 3, 1), generate(30, 40, 3, 2), 0.0)


def masked():
    images, _ = digits()
    batch = Batch(images.inputs[:6].reshape(6, -1)[:, 20:30], images.targets[:6])
    data = dropout.draw_masks(batch, 5, 0.5, 2, 0, 0.1, dtype=WIDE)
    return problem(dropout, data, np.zeros((5, 10 + 1 + 10)))


MADE = {
    "hinge": lambda: documents(svm),
    "logistic": lambda: documents(logistic_edges),
    "completion": completed,
    "cuts": parted,
    "dropout": masked,
}
SERVED = {"factors": factored, "logistic of servers": classified}
problems = pytest.mark.parametrize("name", MADE)


def drawn(one):
    """A table at which no loss has a kink."""
    return np.random.default_rng(1).uniform(0.1, 1, one.params.shape)


def dense(one, table, indices):
    """Return the mean loss and its gradient, of all rows."""
    loss, (rows, values) = one.gradient(table, one.take(np.array(indices)))
    whole = np.zeros((len(table), values.shape[1]))
    whole[rows] = values
    return loss, whole.reshape(table.shape)


@problems
def test_the_loss_of_all_edges_is_the_objective_with_its_norm(name):
    one = MADE[name]()
    assert one.frequency.min() > 0  # a row of no edge has a norm, but no gradient
    model, data, table = one.kernel.model, one.kernel.data, drawn(one)
    loss, _ = dense(one, table, range(one.examples))
    assert loss == pytest.approx(model.objective(table, data), rel=1e-12)


@problems
def test_the_gradient_is_the_slope_of_the_minibatch_loss(name):
    one, indices = MADE[name](), [3, 8, 5, 3]  # one edge twice
    table = drawn(one)
    _, grads = dense(one, table, indices)
    slopes = np.zeros_like(table)
    for place in np.ndindex(table.shape):
        ends = []
        for sign in (1, -1):
            moved = table.copy()
            moved[place] += sign * STEP
            ends.append(dense(one, moved, indices)[0])
        slopes[place] = (ends[0] - ends[1]) / (2 * STEP)
    assert abs(grads).max() > 0.01
    np.testing.assert_allclose(grads, slopes, atol=1e-8)


@problems
def test_minibatches_weighted_by_their_examples_add_up_to_all(name):
    one = MADE[name]()
    table, count = drawn(one), one.examples
    loss, grads = dense(one, table, range(count))
    parts = np.split(np.random.default_rng(0).permutation(count), [3, 7])
    found = [dense(one, table, part) for part in parts]
    losses, slopes = zip(*found, strict=True)
    weights = np.array([len(part) / count for part in parts])
    assert weights @ losses == pytest.approx(loss, rel=1e-12)
    total = np.tensordot(weights, slopes, axes=1)
    np.testing.assert_allclose(total, grads, atol=1e-13)


@pytest.mark.parametrize("name", SERVED)
def test_the_loss_of_all_examples_of_a_served_problem_is_its_objective(name):
    one = SERVED[name]()
    table = drawn(one).astype(np.float32)
    loss, (rows, grads) = one.gradient(table, one.take(np.arange(one.examples)))
    assert loss == pytest.approx(one.evaluate(table)["objective"], rel=1e-6)
    assert grads.shape == (len(rows), *table.shape[1:]) and grads.dtype == np.float32


@pytest.mark.parametrize("name", MADE | SERVED)
def test_rows_of_a_minibatch_rise_and_the_frequency_counts_them(name):
    one = (MADE | SERVED)[name]()
    counts = np.zeros(len(one.params), int)
    assert len(one.touched(one.take(np.arange(0)))) == 0
    for e in range(one.examples):
        rows = one.touched(one.take(np.array([e])))
        assert (np.diff(rows) > 0).all()
        counts[rows] += 1
    assert counts.tolist() == one.frequency.tolist()


@pytest.mark.parametrize("model", [svm, logistic_edges])
def test_a_vector_is_also_a_table_of_one_column(model):
    one = documents(model)
    tall, table = one.table(), drawn(one)
    loss, grads = dense(one, table, range(9))
    again, column = dense(tall, table[:, None], range(9))
    assert tall.params.shape == (25, 1) and again == loss
    assert column[:, 0].tolist() == grads.tolist()
    shapes = []  # evaluation gets the shape of the start value
    flat = problem(model, one.kernel.data, one.params, lambda w: shapes.append(w.shape))
    flat.evaluate(np.zeros((25, 1)))
    assert shapes == [(25,)]


def test_a_row_moves_down_its_gradient():
    for grads in (np.float32([3, 5]), np.float32([[3, 1], [5, 2]])):
        before = grads.copy()
        descend(None, 7, grads, 1, np.float32(0.5))
        assert (grads[0] == before[0]).all() and (grads[1] == -0.5 * before[1]).all()
