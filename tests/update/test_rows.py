"""AdaGrad on rows against optax on the dense gradient, and the rows themselves."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numba import njit

from dml.types import Embeddings, Rows
from dml.update import rows
from dml.update.rows import LANES, AdaGrad, pack, padded, rsqrt, unpack, width

ROWS, DIMS = 7, (8, 16, 24)


def state(dim, seed=0):
    draws = np.random.default_rng(seed)
    return Embeddings(
        draws.normal(size=(ROWS, dim)).astype(np.float32),
        draws.normal(size=ROWS).astype(np.float32),
        (1 + draws.random((ROWS, dim))).astype(np.float32),
        (1 + draws.random(ROWS)).astype(np.float32),
    )


def packed(one):
    table = np.full((ROWS, width(one.vectors_TxD.shape[1])), np.nan, np.float32)
    table = pack(one)
    return table


def gradient(dim, index, seed=1):
    """Make the sums of the rows named, padded with zeros, and the same ones dense."""
    pad, draws = padded(dim), np.random.default_rng(seed)
    sparse = np.zeros((len(index), pad + LANES), np.float32)
    sparse[:, :dim] = draws.normal(size=(len(index), dim)) * 3
    sparse[:, pad] = draws.normal(size=len(index))
    dense = np.zeros((ROWS, dim), np.float32), np.zeros(ROWS, np.float32)
    dense[0][index], dense[1][index] = sparse[:, :dim], sparse[:, pad]
    return Rows(np.asarray(index), sparse), dense


def adagrad(table, sparse, rate):
    """Take a step in place."""
    shard = AdaGrad(table, rate)
    shard.update(*sparse)
    table[:] = shard.values


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


def test_rsqrt_of_nan_is_nan():
    assert np.isnan(roots(np.array([np.nan, -np.nan], np.float32))).all()


@pytest.mark.parametrize("dim", (1, 8, 15, 16, 17, 24, 300))
def test_a_state_comes_out_of_a_table_as_it_went_in(dim):
    one = state(dim)
    table = packed(one)
    assert not np.isnan(table).any()
    assert width(dim) % LANES == 0 and padded(dim) - 2 * LANES < dim <= padded(dim)
    for went, came in zip(one, unpack(table, dim), strict=True):
        assert came.tobytes() == went.tobytes() and came.dtype == went.dtype
        assert not np.shares_memory(came, table)


@pytest.mark.parametrize("dim", DIMS)
def test_adagrad_is_that_of_optax_on_the_dense_gradient(dim):
    one, table = state(dim), packed(state(dim))
    params = jnp.array(one.vectors_TxD), jnp.array(one.biases_T)
    optimizer = optax.adagrad(1.0, initial_accumulator_value=1, eps=0)
    kept = optimizer.init(params)
    squares = jnp.array(one.vector_squares_TxD), jnp.array(one.bias_squares_T)
    kept = (kept[0]._replace(sum_of_squares=squares), *kept[1:])
    for step in range(5):
        index = np.random.default_rng(step).permutation(ROWS)[: 2 + step]
        sparse, dense = gradient(dim, index, seed=step)
        adagrad(table, sparse, 0.1)
        steps = 0.1 * dense[0], dense[1]  # a bias moves at rate 1
        updates, kept = optimizer.update(steps, kept, params)
        params = optax.apply_updates(params, updates)
    found = unpack(table, dim)
    want = *params, *kept[0].sum_of_squares
    # five steps of at most 1, with roots that are 5e-6 off, and float32's rounding
    for got, wanted in zip(found[:2], want[:2], strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=5 * (5e-6 + 2e-7))
    for got, wanted in zip(found[2:], want[2:], strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


@pytest.mark.parametrize("dim", DIMS)
def test_rows_not_named_and_padding_keep_their_bits(dim):
    table, before = packed(state(dim)), packed(state(dim))
    pad, index = padded(dim), [5, 2]
    for step in range(20):
        adagrad(table, gradient(dim, index, step)[0], 0.1)
    others = np.setdiff1d(np.arange(ROWS), index)
    assert table[others].tobytes() == before[others].tobytes()
    kept = np.r_[dim:pad, pad + dim : 2 * pad, 2 * pad + 2 : 2 * pad + LANES]
    assert table[:, kept].tobytes() == before[:, kept].tobytes()
    numbers = np.setdiff1d(np.arange(width(dim)), kept)
    assert (table[np.ix_(index, numbers)] != before[np.ix_(index, numbers)]).all()


@pytest.mark.parametrize("dim", DIMS)
def test_no_number_moves_by_more_than_one(dim):
    table, before = packed(state(dim)), packed(state(dim))
    sparse, _ = gradient(dim, [0, 3])
    adagrad(table, sparse._replace(values=sparse.values * np.float32(1e8)), 0.1)
    moved = abs(unpack(table, dim).vectors_TxD - unpack(before, dim).vectors_TxD)
    # the roots are 5e-6 off, and numbers of up to 4 round by 2.4e-7
    assert moved.max() == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("place", (0, -1))
def test_a_gradient_that_is_not_a_number_makes_numbers_that_are_not(place):
    dim = 24
    table = packed(state(dim))
    sparse, _ = gradient(dim, [4])
    sparse.values[0, padded(dim) if place else 3] = np.nan
    adagrad(table, sparse, 0.1)
    found = unpack(table, dim)
    numbers = found[1::2] if place else (found[0][:, 3], found[2][:, 3])
    for column in numbers:
        assert np.isnan(column[4])
    assert sum(np.isnan(x).sum() for x in found) == 2
    adagrad(table, gradient(dim, [4])[0], 0.1)
    assert sum(np.isnan(x).sum() for x in unpack(table, dim)) == 2


def test_a_kernel_is_compiled_once_for_all_dims_of_a_width():
    assert rows.kernel(padded(3)) is rows.kernel(padded(32))
    assert rows.kernel(padded(33)) is not rows.kernel(padded(32))
