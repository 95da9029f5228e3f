import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dml.models.networks.glove import Records, glove, weight
from dml.types import Embeddings

WORDS, DIM, COUNT = 9, 5, 40
one_and_two = pytest.mark.parametrize("tables", [1, 2])


def example(tables, dtype=np.float32, seed=0):
    """Params away from their small start, and records that share rows."""
    rng = np.random.default_rng(seed)
    rows = tables * WORDS
    params = Embeddings(
        rng.standard_normal((rows, DIM)).astype(dtype),
        rng.standard_normal(rows).astype(dtype),
        np.ones((rows, DIM), dtype),
        np.ones(rows, dtype),
    )
    words = rng.integers(0, WORDS, COUNT).astype(np.int32)
    apart = rng.integers(1, WORDS, COUNT).astype(np.int32)  # no word meets itself
    contexts = (words + apart) % WORDS + (tables - 1) * WORDS
    counts = 20 * rng.random(COUNT) + 0.1
    logs, weights = np.log(counts), weight(counts, 10, 0.75)
    return params, Records(words, contexts, logs.astype(dtype), weights.astype(dtype))


@one_and_two
def test_loss_and_metrics_are_the_formula_term_by_term_on_numpy_and_on_jax(tables):
    params, batch = example(tables)
    model = glove(WORDS, DIM, tables)
    errors = []
    for word, context, log in zip(*batch[:3], strict=True):
        product = sum(params.vectors_TxD[word] * params.vectors_TxD[context])
        errors.append(product + params.biases_T[word] + params.biases_T[context] - log)
    loss = 0.5 * np.mean(batch.weights * np.square(errors))
    on_jax = jax.tree.map(jnp.asarray, (params, batch))
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        found = jax.jit(model.loss)(*on_jax), jax.jit(model.metrics)(*on_jax)
    # sums of 40 float32 terms in another order
    error = np.mean(np.abs(errors))
    for where in (found, (model.loss(params, batch), model.metrics(params, batch))):
        assert where[0] == pytest.approx(loss, rel=1e-5)
        assert where[1] == pytest.approx({"error": error}, rel=1e-5)


def test_weight_is_a_power_of_the_count_and_1_from_x_max_on():
    counts = np.array([0.1, 1, 5, 9.99, 10, 11, 1e6])
    found = weight(counts.astype(np.float32), x_max=10, alpha=0.75)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[:4], (counts[:4] / 10) ** 0.75, rtol=1e-6)
    assert found[4:].tolist() == [1, 1, 1]


@one_and_two
def test_init_is_uniform_small_and_of_its_seed_alone(tables):
    words, dim = 500, 20
    state, same, other = (glove(words, dim, tables).init(seed) for seed in (1, 1, 2))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(state, same, strict=True))
    assert not np.array_equal(state.vectors_TxD, other.vectors_TxD)
    rows = tables * words
    assert [part.shape for part in state] == 2 * [(rows, dim), (rows,)]
    for numbers in state[:2]:
        assert numbers.dtype == np.float32 and abs(numbers).max() <= 0.5 / dim
        # of a uniform number, width 1/dim; five standard errors of n draws
        spread = 5 / np.sqrt(numbers.size) / dim
        assert abs(numbers.mean()) < spread * np.sqrt(1 / 12)
        assert numbers.var() == pytest.approx(1 / 12 / dim**2, abs=spread / dim / 13)
    assert all((squares == np.float32(1)).all() for squares in state[2:])
