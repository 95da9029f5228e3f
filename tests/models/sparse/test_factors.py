import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dml.data.sparse.ratings import generate
from dml.models.sparse.factors import centre, gradient, problem, start
from dml.types import Ratings

MU = 0.3


def touched(users, items, index):
    return np.unique(np.concatenate([users[index], items[index]]))


def example(factors=4, seed=0):
    """A table, ratings of its rows, and some of them: one twice, one not at all."""
    training, _ = generate(7, 5, 30, factors, seed)
    table = np.random.default_rng(seed).standard_normal((12, factors + 1))
    return table.astype(np.float32), training, np.array([3, 8, 3, 20, 1, 26])


def by_hand(table, ratings, index, mu):
    x, y = table[ratings.users[index]], table[ratings.items[index]]
    misses = (x[:, :-1] * y[:, :-1]).sum(axis=1) + x[:, -1] + y[:, -1]
    misses -= ratings.values[index]
    weights = (x**2).sum(axis=1) + (y**2).sum(axis=1)
    return (0.5 * misses**2 + 0.5 * mu * weights).mean()


@pytest.mark.parametrize("factors, mu", [(0, MU), (4, 0.0), (19, MU)])
def test_loss_and_gradient_are_those_of_the_formula(factors, mu):
    table, ratings, index = example(factors)
    rows = touched(ratings.users, ratings.items, index)
    loss, grads = gradient(table, ratings, index, rows, mu)
    expected, slopes = jax.jit(jax.value_and_grad(by_hand))(
        jnp.asarray(table), Ratings(*map(jnp.asarray, ratings)), index, mu
    )
    # float32: sums of up to 40 terms of size 10
    assert loss == pytest.approx(float(expected), rel=1e-5)
    np.testing.assert_allclose(grads, slopes[rows], rtol=1e-4, atol=1e-5)
    assert gradient(table, ratings, index[:0], rows, mu)[0] == 0
    others = np.setdiff1d(np.arange(len(table)), rows)
    assert len(others) and not np.any(slopes[others])


def test_ratings_are_centred_and_the_start_is_small_and_of_its_seed():
    one = Ratings(*np.int32([[0, 1], [2, 2]]), np.float32([1, 4]))
    other = Ratings(*np.int32([[0], [2]]), np.float32([5]))
    training, held_out = centre(one, other)
    assert training.values.tolist() == [-1.5, 1.5]
    assert held_out.values.tolist() == [2.5]
    assert held_out.values.dtype == np.float32
    table, same, other = (start(300, 10, seed) for seed in (0, 0, 1))
    assert table.tobytes() == same.tobytes() != other.tobytes()
    assert table.dtype == np.float32 and table.shape == (300, 11)
    assert not table[:, 10].any()
    # five standard errors of 3000 draws
    assert table[:, :10].std() == pytest.approx(0.1, abs=5 * 0.1 / np.sqrt(6000))


def test_the_frequency_counts_ratings_and_held_out_rows_have_none():
    one = Ratings(*np.int32([[0, 1], [2, 2]]), np.float32([1, 4]))
    other = Ratings(*np.int32([[0], [5]]), np.float32([5]))
    found = problem(one, other, 4, 0.1, seed=0)
    assert found.params.shape == (6, 5)
    assert found.frequency.tolist() == [1, 1, 2, 0, 0, 0]
    assert np.isfinite(found.evaluate(found.params)["rmse"])


def test_0_predicts_the_mean_of_the_training():
    training, held_out = generate(9, 7, 50, 3, seed=0)
    found = problem(training, held_out, 4, 0.1, seed=0)
    values = held_out.values - training.values.mean()
    nothing = found.evaluate(np.zeros_like(found.params))
    assert nothing["rmse"] == pytest.approx(np.sqrt((values**2).mean()), rel=1e-5)
