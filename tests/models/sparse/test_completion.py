"""Matrix completion against the model of servers, GloVe and its own optimum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dml.data.sparse.ratings import generate
from dml.models.networks.glove import Records, glove, weight
from dml.models.sparse.completion import (
    entries_from_counts,
    entries_from_ratings,
    gradient,
    objective,
    optimum,
    rmse,
    solve,
)
from dml.models.sparse.factors import metrics
from dml.types import BadInput, Embeddings, Ratings

USERS, ITEMS = 9, 7
MUS = (0.3, 0.7)


def entries(factors, mus=MUS):
    """Entries of uneven weights, and a table far from their optimum."""
    rng = np.random.default_rng(0)
    training, _ = generate(USERS, ITEMS, 40, 2, seed=0)
    data = entries_from_ratings(training, *mus, np.float64)
    data = data._replace(weights=rng.random(len(data.targets)) + 1)
    return rng.standard_normal((USERS + ITEMS, factors + 1)), data


@pytest.mark.parametrize("factors", [0, 5])
def test_of_ratings_it_is_the_model_of_the_servers(factors):
    training, _ = generate(USERS, ITEMS, 40, 2, seed=0)
    table_TxD = np.random.default_rng(1).standard_normal((16, factors + 1))
    table_TxD = table_TxD.astype(np.float32)
    data = entries_from_ratings(training, 0.3, 0.3)
    want = metrics(table_TxD, training, 0.3)
    assert objective(table_TxD, data) == pytest.approx(want["loss"], rel=1e-5)
    assert rmse(table_TxD, data) == pytest.approx(want["rmse"], rel=1e-5)
    rows_Ex2 = data.edges.rows.reshape(-1, 2)
    assert (rows_Ex2[:, 0] < rows_Ex2[:, 1]).all()
    np.testing.assert_array_equal(rows_Ex2.T, [training.users, training.items])


def test_of_counts_it_is_glove():
    words, dim = 8, 6
    rng = np.random.default_rng(2)
    pairs, count = rng.integers(0, words, (2, 30)).astype(np.int32), rng.random(30) * 20
    data = entries_from_counts(*pairs, count, words, 10, 0.75, dtype=np.float64)
    table_TxD = rng.standard_normal((2 * words, dim + 1))
    params = Embeddings(table_TxD[:, :dim], table_TxD[:, dim], None, None)
    weights = weight(count, 10, 0.75)
    records = Records(pairs[0], pairs[1] + words, np.log(count), weights)
    with jax.enable_x64(True):
        on_jax = jax.tree.map(jnp.asarray, (params, records))
        loss = jax.jit(glove(words, dim).loss)(*on_jax)
    assert objective(table_TxD, data) == pytest.approx(float(loss), rel=1e-12)


def slopes(table_TxD, data):
    total_TxD, grads_2xD = np.zeros_like(table_TxD), np.empty((2, table_TxD.shape[1]))
    for e, rows in enumerate(data.edges.rows.reshape(-1, 2)):
        gradient(table_TxD, data, e, 0, grads_2xD)
        total_TxD[rows] += grads_2xD / len(data.targets)
    return total_TxD


def test_at_the_optimum_all_slopes_are_gone_and_small_moves_only_raise():
    table_TxD, data = entries(factors=2)
    best_TxD = optimum(data, table_TxD)
    half_TxD = table_TxD.copy()
    solve(half_TxD, data, 0, MUS[0])
    assert abs(slopes(half_TxD, data)[np.unique(data.edges.rows[::2])]).max() < 1e-8
    # a sweep that falls by 1e-7 of the objective is the last
    assert abs(slopes(best_TxD, data)).max() < 1e-3 * abs(slopes(table_TxD, data)).max()
    least = objective(best_TxD, data)
    assert least < 0.5 * objective(table_TxD, data)
    for seed in range(5):
        small_TxD = 0.01 * np.random.default_rng(seed).standard_normal(best_TxD.shape)
        assert objective(best_TxD + small_TxD, data) > least
    table_TxD, data = entries(factors=12, mus=(0.0, 0.0))
    best_TxD = optimum(data, table_TxD)
    assert np.isfinite(best_TxD).all()
    assert objective(best_TxD, data) < 1e-6 * objective(table_TxD, data)


def test_sides_that_are_not_apart_and_counts_of_nothing_are_bad_input():
    order = "all rows of users before .* got .*; numb"
    empty = "at least one entry, got none; pass"
    for users, items, message in [
        ([0, 5], [5, 6], order),
        ([-1], [3], order),
        ([], [], empty),
    ]:
        some = Ratings(np.int32(users), np.int32(items), np.ones(len(users), "f4"))
        with pytest.raises(BadInput, match=message):
            entries_from_ratings(some, 0.1, 0.1)
    for counts, message in [
        ([1.0, 0.0], "counts above 0, got 0.0; pass"),
        ([], "at least one count, got none; pass"),
    ]:
        some = np.zeros(len(counts), np.int32)
        with pytest.raises(BadInput, match=message):
            entries_from_counts(some, some, np.array(counts), 3, 10, 0.75)
