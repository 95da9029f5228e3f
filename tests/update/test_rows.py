"""AdaGrad on rows against optax on the dense gradient, and the rows themselves."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numba import njit

from dml.types import Embeddings, Rows
from dml.update import rows
from dml.update.rows import LANES, AdaGrad, pack, padded_length, rsqrt, unpack, width

ROWS = 7
dims = pytest.mark.parametrize("dim", (8, 16, 24))


def state(dim):
    draws = np.random.default_rng(0)
    return Embeddings(
        draws.normal(size=(ROWS, dim)).astype(np.float32),
        draws.normal(size=ROWS).astype(np.float32),
        (1 + draws.random((ROWS, dim))).astype(np.float32),
        (1 + draws.random(ROWS)).astype(np.float32),
    )


def gradient(dim, index, seed=1, scale=1.0):
    """Make the sums of the rows named, padded with zeros, and the same ones dense."""
    pad, draws = padded_length(dim), np.random.default_rng(seed)
    sparse = np.zeros((len(index), pad + LANES), np.float32)
    sparse[:, :dim] = draws.normal(size=(len(index), dim)) * 3 * scale
    sparse[:, pad] = draws.normal(size=len(index)) * scale
    dense = np.zeros((ROWS, dim), np.float32), np.zeros(ROWS, np.float32)
    dense[0][index], dense[1][index] = sparse[:, :dim], sparse[:, pad]
    return Rows(np.asarray(index), sparse), dense


@njit
def roots(numbers):
    found = np.empty_like(numbers)
    for n in range(len(numbers)):
        found[n] = rsqrt(numbers[n])
    return found


def test_rsqrt_is_right_to_5_millionths_for_all_that_squares_can_be():
    numbers = np.geomspace(1e-6, 1e30, 400_001).astype(np.float32)
    exact = 1 / np.sqrt(numbers.astype(float))
    off = abs(roots(numbers) / exact - 1).max()
    # measured: 4.714e-6 here, 4.733e-6 over every float32 from 1 to 4, which repeat
    assert 4e-6 < off <= 5e-6
    assert np.isnan(roots(np.array([np.nan, -np.nan], np.float32))).all()


@pytest.mark.parametrize("dim", (1, 8, 15, 16, 17, 24, 300))
def test_a_state_comes_out_of_a_table_as_it_went_in(dim):
    one, pad = state(dim), padded_length(dim)
    table = pack(one)
    assert width(dim) % LANES == 0 and pad - 2 * LANES < dim <= pad
    for went, came in zip(one, unpack(table, dim), strict=True):
        assert came.tobytes() == went.tobytes() and came.dtype == went.dtype
        assert not np.shares_memory(came, table)


# a large gradient moves no number by more than 1
@pytest.mark.parametrize("scale", (1.0, 1e8))
@dims
def test_adagrad_is_that_of_optax_on_the_dense_gradient(dim, scale):
    one, shard = state(dim), AdaGrad(pack(state(dim)), 0.1)
    params = jnp.array(one.vectors_TxD), jnp.array(one.biases_T)
    optimizer = optax.adagrad(1.0, initial_accumulator_value=1, eps=0)
    kept = optimizer.init(params)
    squares = jnp.array(one.vector_squares_TxD), jnp.array(one.bias_squares_T)
    kept = (kept[0]._replace(sum_of_squares=squares), *kept[1:])
    for step in range(5):
        index = np.random.default_rng(step).permutation(ROWS)[: 2 + step]
        sparse, dense = gradient(dim, index, step, scale)
        shard.update(*sparse)
        steps = 0.1 * dense[0], dense[1]  # a bias moves at rate 1
        updates, kept = optimizer.update(steps, kept, params)
        params = optax.apply_updates(params, updates)
    found, want = unpack(shard.values, dim), (*params, *kept[0].sum_of_squares)
    # five steps of at most 1, with roots that are 5e-6 off, and float32's rounding
    for got, wanted in zip(found[:2], want[:2], strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=5 * (5e-6 + 2e-7))
    for got, wanted in zip(found[2:], want[2:], strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


@dims
def test_rows_not_named_and_padding_keep_their_bits(dim):
    before, index, pad = pack(state(dim)), [5, 2], padded_length(dim)
    shard = AdaGrad(before, 0.1)
    for step in range(20):
        shard.update(*gradient(dim, index, step)[0])
    others = np.setdiff1d(np.arange(ROWS), index)
    assert shard.values[others].tobytes() == before[others].tobytes()
    kept = np.r_[dim:pad, pad + dim : 2 * pad, 2 * pad + 2 : 2 * pad + LANES]
    assert shard.values[:, kept].tobytes() == before[:, kept].tobytes()
    numbers = np.ix_(index, np.setdiff1d(np.arange(width(dim)), kept))
    assert (shard.values[numbers] != before[numbers]).all()


@pytest.mark.parametrize("place", (0, -1))
def test_a_gradient_that_is_not_a_number_makes_numbers_that_are_not(place):
    dim = 24
    shard, (sparse, _) = AdaGrad(pack(state(dim)), 0.1), gradient(dim, [4])
    sparse.values[0, padded_length(dim) if place else 3] = np.nan
    for grads in (sparse, gradient(dim, [4])[0]):
        shard.update(*grads)
        found = unpack(shard.values, dim)
        assert sum(np.isnan(x).sum() for x in found) == 2
    for column in found[1::2] if place else (found[0][:, 3], found[2][:, 3]):
        assert np.isnan(column[4])


def test_a_kernel_is_compiled_once_for_all_dims_of_a_width():
    assert rows.kernel(padded_length(3)) is rows.kernel(padded_length(32))
    assert rows.kernel(padded_length(33)) is not rows.kernel(padded_length(32))
