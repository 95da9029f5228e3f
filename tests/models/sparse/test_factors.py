import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dml.data.minibatches import minibatches
from dml.data.sparse.ratings import generated
from dml.models.sparse.factors import centred, gradient, metrics, start
from dml.types import Ratings

MU = 0.3


def touched(users, items, index):
    return np.unique(np.concatenate([users[index], items[index]]))


def example(factors=4, seed=0):
    """A table, ratings of its rows, and some of them: one twice, one not at all."""
    training, _ = generated(7, 5, 30, factors, seed)
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
    others = np.setdiff1d(np.arange(len(table)), rows)
    assert len(others) and not np.any(slopes[others])


def test_the_order_of_the_rows_does_not_matter_to_their_gradients():
    table, ratings, index = example()
    rows = touched(ratings.users, ratings.items, index)
    mixed = np.random.default_rng(1).permutation(len(rows))
    _, grads = gradient(table, ratings, index, rows, MU)
    _, others = gradient(table, ratings, index, rows[mixed], MU)
    assert np.array_equal(grads[mixed], others)


def test_parts_weighted_by_their_shares_add_up_to_the_whole():
    table, ratings, index = example()
    whole, losses = np.zeros_like(table), 0.0
    for part in (index[:4], index[4:], index[:0]):
        rows = touched(ratings.users, ratings.items, part)
        loss, grads = gradient(table, ratings, part, rows, MU)
        share = np.float32(len(part) / len(index))
        whole[rows] += share * grads
        losses += share * loss
    rows = touched(ratings.users, ratings.items, index)
    loss, grads = gradient(table, ratings, index, rows, MU)
    assert losses == pytest.approx(loss, rel=1e-6)
    np.testing.assert_allclose(whole[rows], grads, rtol=1e-5, atol=1e-6)


def test_metrics_are_the_loss_of_all_and_the_root_of_the_mean_square():
    table, ratings, _ = example()
    every = np.arange(len(ratings.values))
    found = metrics(table, ratings, MU)
    assert found["loss"] == pytest.approx(by_hand(table, ratings, every, MU), rel=1e-5)
    square = 2 * by_hand(table, ratings, every, 0.0)
    assert found["rmse"] == pytest.approx(np.sqrt(square), rel=1e-5)


def test_a_table_that_has_diverged_says_so():
    table, ratings, index = example()
    rows = touched(ratings.users, ratings.items, index)
    table[rows[0]] = np.nan
    loss, grads = gradient(table, ratings, index, rows, MU)
    assert np.isnan(loss) and np.isnan(grads[0]).all()
    assert np.isnan(metrics(table, ratings, MU)["rmse"])


def test_centred_ratings_are_less_the_mean_of_the_training():
    one = Ratings(*np.int32([[0, 1], [2, 2]]), np.float32([1, 4]))
    other = Ratings(*np.int32([[0], [2]]), np.float32([5]))
    training, held_out = centred(one, other)
    assert training.values.tolist() == [-1.5, 1.5]
    assert held_out.values.tolist() == [2.5]
    assert held_out.values.dtype == np.float32


def test_start_is_small_with_biases_at_0_and_of_its_seed_alone():
    table, same, other = (start(300, 10, seed) for seed in (0, 0, 1))
    assert table.tobytes() == same.tobytes() != other.tobytes()
    assert table.dtype == np.float32 and table.shape == (300, 11)
    assert not table[:, 10].any()
    # five standard errors of 3000 draws
    assert table[:, :10].std() == pytest.approx(0.1, abs=5 * 0.1 / np.sqrt(6000))


def test_factors_find_a_matrix_of_low_rank_that_biases_do_not():
    found = {}
    for factors in (0, 3):
        training, held_out = centred(*generated(60, 50, 2500, 3, seed=2))
        table = start(110, factors, seed=0)
        for index in minibatches(len(training.values), 10, seed=0, epochs=40):
            rows = touched(training.users, training.items, index)
            _, grads = gradient(table, training, index, rows, 0.02)
            table[rows] -= np.float32(0.3) * grads
        found[factors] = metrics(table, held_out, 0.02)["rmse"]
    # the noise alone is 0.5, the products 1
    assert found[3] < 0.7 < 0.95 < found[0]
