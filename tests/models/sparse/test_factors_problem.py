import numpy as np
import pytest

from dml.data.sparse.ratings import generated
from dml.models.sparse.factors import problem
from dml.types import Ratings


def example():
    training, held_out = generated(9, 7, 50, 3, seed=0)
    return training, held_out, problem(training, held_out, 4, 0.1, seed=0)


def test_the_frequency_is_how_often_the_minibatches_touch_a_row():
    training, _, found = example()
    counts = np.zeros(len(found.params), int)
    for number in range(found.examples):
        counts[found.touched(found.take(np.array([number])))] += 1
    assert found.frequency.tolist() == counts.tolist()
    assert counts.sum() == 2 * len(training.values)


def test_steps_along_the_gradient_lower_the_objective_to_noise():
    training, held_out, found = example()
    table = found.params.copy()
    before, every = found.evaluate(table), np.arange(found.examples)
    loss, (rows, _) = found.gradient(table, found.take(every))
    assert loss == pytest.approx(before["objective"], rel=1e-6)
    for _ in range(100):
        table[rows] -= found.gradient(table, found.take(every))[1].values
    after = found.evaluate(table)
    assert after["objective"] < 0.5 * before["objective"]
    # at 0 the table says the mean of the training
    values = held_out.values - training.values.mean()
    nothing = found.evaluate(np.zeros_like(table))
    assert nothing["rmse"] == pytest.approx(np.sqrt((values**2).mean()), rel=1e-5)


def test_rows_that_only_the_held_out_ratings_have_are_in_the_table():
    one = Ratings(*np.int32([[0, 1], [2, 2]]), np.float32([1, 4]))
    other = Ratings(*np.int32([[0], [5]]), np.float32([5]))
    found = problem(one, other, 4, 0.1, seed=0)
    assert found.params.shape == (6, 5)
    assert found.frequency.tolist() == [1, 1, 2, 0, 0, 0]
    assert np.isfinite(found.evaluate(found.params)["rmse"])
