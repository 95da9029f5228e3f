"""Rows that a sparse model moves."""

import numpy as np

from dml.models.sparse import completion, cuts
from dml.update.moves import Moves
from dml.update.table import table

ROWS, GRADS = np.array([4, 0, 2]), np.float32([[1, -2, 3], [0, 5, 1], [2, 2, -1]])


def start():
    return np.full((5, 3), 1 / 3, np.float32)


def test_a_model_that_moves_down_its_gradient_is_sgd():
    one, other = Moves(start(), completion.move, lambda number: 0.25), start()
    sgd = table("sgd", other, 0.25)
    for shard in (one, sgd):
        shard.update(ROWS, GRADS)
        shard.update(slice(1, 4), GRADS)
    np.testing.assert_allclose(one.values, sgd.values, rtol=1e-6)


def test_rows_of_cuts_stay_on_the_simplex_and_gradients_stay_as_they_are():
    grads = GRADS.copy()
    shard = Moves(start(), cuts.move, lambda number: 0.25)
    shard.update(ROWS, grads)
    assert (shard.values >= 0).all()
    np.testing.assert_allclose(shard.values.sum(axis=1), 1, rtol=1e-6)
    nearest = (start()[:1] - 0.25 * GRADS[1:2])[0]
    cuts.project(nearest)
    np.testing.assert_allclose(shard.values[0], nearest, rtol=1e-6)
    assert shard.values[1].tolist() == start()[1].tolist()
    assert grads.tolist() == GRADS.tolist()


def test_the_rate_is_that_of_the_number_of_the_update():
    shard = Moves(np.zeros((1, 1), np.float32), completion.move, lambda n: 1 / n)
    for _ in range(2):
        shard.update(np.array([0]), np.float32([[1]]))
    assert shard.values[0, 0] == -1.5
