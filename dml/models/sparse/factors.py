"""Matrix factorisation with biases (Koren 2009), one table for users and items.

    L = mean of ½ (⟨l_u, r_i⟩ + b_u + b_i - v_ui)² + ½ μ (|l_u|² + |r_i|² + b_u² + b_i²)

This is the mean over ratings v_ui, for factors l_u of user u and r_i of item i. A row
of the table has the factors, then the bias. The norm of a rating includes only the two
rows that the rating touches (Gemulla 2011), so a minibatch's gradient is sparse.

`completion` has the same objective, if both of its norms have weight μ. Sums in this
module use SIMD and are thus rounded differently.
"""

import math

import numpy as np
from numba import njit

from dml.models.sparse.completion import edges
from dml.models.sparse.problem import row_problem
from dml.types import Problem, Ratings

START_DEVIATION = 0.1  # of the initial factors; their products are near 0
# LLVM's fast math without nnan and ninf: sums may be reordered, NaN is preserved
FAST = {"reassoc", "contract", "nsz"}


def problem(
    training: Ratings, held_out: Ratings, factors: int, mu: float, seed: int
) -> Problem:
    """Return the problem of a table of factors.

    The access frequency of a row is its number of ratings.

    Args:
      training: Ratings to train on.
      held_out: Ratings to evaluate on.
      factors: Number of factors.
      mu: Weight of the norm.
      seed: Random seed of the start value.
    """
    rows = 1 + max(int(part.items.max()) for part in (training, held_out))
    sides = np.concatenate([training.users, training.items])
    training, held_out = centre(training, held_out)

    def evaluate(table_TxD: np.ndarray) -> dict[str, float]:
        return {
            "objective": metrics(table_TxD, training, mu)["loss"],
            "rmse": metrics(table_TxD, held_out, mu)["rmse"],
        }

    return row_problem(
        start(rows, factors, seed),
        edges(training.users, training.items),
        lambda table, index, rows: gradient(table, training, index, rows, mu),
        evaluate,
        np.bincount(sides, minlength=rows),
    )


def start(rows: int, factors: int, seed: int) -> np.ndarray:
    """Draw a table of small factors; biases are 0."""
    draws = np.random.default_rng(seed).standard_normal((rows, factors + 1))
    table_TxD = (START_DEVIATION * draws).astype(np.float32)
    table_TxD[:, factors] = 0
    return table_TxD


def centre(training: Ratings, held_out: Ratings) -> tuple[Ratings, Ratings]:
    """Subtract the mean of the training ratings from both sets."""
    mean = training.values.mean(dtype=np.float64)
    centred_training, centred_held_out = (
        part._replace(values=(part.values - mean).astype(np.float32))
        for part in (training, held_out)
    )
    return centred_training, centred_held_out


def gradient(
    table_TxD: np.ndarray,
    ratings: Ratings,
    index: np.ndarray,
    rows: np.ndarray,
    mu: float,
) -> tuple[float, np.ndarray]:
    """Return the mean loss of a minibatch, and the gradient of its rows.

    Args:
      table_TxD: The table.
      ratings: All ratings.
      index: Indices of the minibatch's ratings.
      rows: Rows of the minibatch.
      mu: Weight of the norm.
    """
    grads_NxD = np.zeros((len(rows), table_TxD.shape[1]), np.float32)
    loss = _gradient(table_TxD, ratings, index, rows, np.float32(mu), grads_NxD)
    return loss, grads_NxD


def metrics(table_TxD: np.ndarray, ratings: Ratings, mu: float) -> dict[str, float]:
    """Return the mean loss of all ratings, and the root mean squared error."""
    squares, norms = _sums(table_TxD, ratings)
    return {"loss": 0.5 * (squares + mu * norms), "rmse": math.sqrt(squares)}


@njit(fastmath=FAST, cache=True, nogil=True)
def _error(x, y, value):
    product = np.float32(0)
    for d in range(len(x) - 1):
        product += x[d] * y[d]
    return product + x[-1] + y[-1] - value


@njit(fastmath=FAST, cache=True, nogil=True)
def _squared_norms(x, y):
    squares = np.float32(0)
    for d in range(len(x)):
        squares += x[d] * x[d] + y[d] * y[d]
    return squares


@njit(fastmath=FAST, cache=True, nogil=True)
def _gradient(table, ratings, index, rows, mu, grads):
    slot = np.empty(len(table), np.int32)  # only the entries of `rows` are used
    for n in range(len(rows)):
        slot[rows[n]] = n
    bias = table.shape[1] - 1
    share = np.float32(1 / max(1, len(index)))
    shrink = mu * share
    loss = 0.0
    for n in index:
        user, item = ratings.users[n], ratings.items[n]
        x, y = table[user], table[item]
        grad_x, grad_y = grads[slot[user]], grads[slot[item]]
        error = _error(x, y, ratings.values[n])
        loss += 0.5 * (error * error + mu * _squared_norms(x, y))
        slope = share * error
        for d in range(bias):
            grad_x[d] += slope * y[d] + shrink * x[d]
            grad_y[d] += slope * x[d] + shrink * y[d]
        grad_x[bias] += slope + shrink * x[bias]
        grad_y[bias] += slope + shrink * y[bias]
    return loss / max(1, len(index))


@njit(fastmath=FAST, cache=True, nogil=True)
def _sums(table, ratings):
    squares = norms = 0.0
    for n in range(len(ratings.values)):
        x, y = table[ratings.users[n]], table[ratings.items[n]]
        error = np.float64(_error(x, y, ratings.values[n]))
        squares += error * error
        norms += _squared_norms(x, y)
    return squares / len(ratings.values), norms / len(ratings.values)
