"""Completion of a matrix from some of its entries, edge by edge (HOGWILD!, Niu 2011).

    edge = ½ w (⟨l, r⟩ + b_u + b_i - v)² + ½ μ_u (|l|² + b_u²) + ½ μ_i (|r|² + b_i²)

This is the loss of an entry with value v and weight w, for a user with factors l and
bias b_u and an item with factors r and bias b_i. A row of the table has the factors,
then the bias; rows of users precede rows of items. GloVe (Pennington 2014) is the case
where v is the logarithm of a count, w the weight of the count, and μ_u = μ_i = 0.

`factors` computes the same gradient over minibatches, but sums in the order of SIMD
lanes, so that results are not bit-identical.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from dml.models.networks.glove import weight
from dml.models.sparse.problem import descend as move
from dml.models.sparse.problem import dot
from dml.models.sparse.problem import leave_table as settle
from dml.models.sparse.problem import same_data as with_rate
from dml.models.sparse.problem import zero_decay as decay
from dml.types import BadInput, Edges, Problem, Ratings, RowBatch, Rows

__all__ = ["decay", "gradient", "move", "objective", "optimum", "with_rate", "settle"]
TOLERANCE = 1e-7  # relative decrease of the objective at which sweeps stop
DAMPING = 1e-10  # of underdetermined systems, relative to the trace


class Entries(NamedTuple):
    """Entries of a matrix: edge e has two rows, of a user and then of an item."""

    edges: Edges
    targets: np.ndarray  # values of the entries
    weights: np.ndarray  # weights of the squared errors
    mu_user: float  # weight of the norm of the user's row
    mu_item: float  # weight of the norm of the item's row


def entries_from_ratings(
    ratings: Ratings, mu_user: float, mu_item: float, dtype: Any = np.float32
) -> Entries:
    """Return an edge for each rating, in the order of the ratings.

    Args:
      ratings: The ratings.
      mu_user: Weight of the norm of a user's row.
      mu_item: Weight of the norm of an item's row.
      dtype: Dtype of targets and weights.
    """
    values = ratings.values.astype(dtype)
    pairs = edges(ratings.users, ratings.items)
    return Entries(pairs, values, np.ones_like(values), float(mu_user), float(mu_item))


def entries_from_counts(
    words: np.ndarray,
    contexts: np.ndarray,
    counts: np.ndarray,
    vocabulary: int,
    x_max: float,
    alpha: float,
    *,
    dtype: Any = np.float32,
) -> Entries:
    """Return GloVe's edges from counts of co-occurrence.

    The rows of words are 0 to vocabulary - 1; the rows of contexts follow.

    Args:
      words: Word of each pair.
      contexts: Context of each pair.
      counts: Count of each pair, above 0.
      vocabulary: Number of words.
      x_max: Count from which pairs have weight 1.
      alpha: Exponent of the weight.
      dtype: Dtype of targets and weights.
    """
    if not len(counts):
        raise BadInput("expected at least one count, got none; pass co-occurring pairs")
    if counts.min() <= 0:
        raise BadInput(
            f"expected counts above 0, got {counts.min()}; pass only pairs that "
            "co-occur"
        )
    logs = np.log(counts.astype(np.float64)).astype(dtype)
    weights = weight(counts, x_max, alpha).astype(dtype)
    pairs = edges(words, contexts.astype(np.int64) + vocabulary)
    return Entries(pairs, logs, weights, 0.0, 0.0)


def edges(users: np.ndarray, items: np.ndarray) -> Edges:
    """Return the edges of pairs of rows; rows of users must precede rows of items."""
    if not len(users):
        raise BadInput("expected at least one entry, got none; pass more entries")
    if users.min() < 0 or users.max() >= items.min():
        raise BadInput(
            "expected all rows of users before all rows of items, got users "
            f"{users.min()} to {users.max()} and items {items.min()} to {items.max()}; "
            "number items after the last user"
        )
    rows = np.stack([users, items], axis=1).astype(np.uint32).ravel()
    return Edges(2 * np.arange(len(users) + 1, dtype=np.int64), rows)


@njit(nogil=True, cache=True)
def prediction_error(table, data, e):
    """Return ⟨l, r⟩ + b_u + b_i - v."""
    k = data.edges.starts[e]
    user, item = data.edges.rows[k], data.edges.rows[k + 1]
    bias = table.shape[1] - 1
    biases = table[user, bias] + table[item, bias] - data.targets[e]
    return dot(table, user, table, item, bias) + biases


@njit(nogil=True, cache=True)
def gradient(table, data, e, t, grads):
    """Return the loss of edge e; set grads for the rows of its user and its item."""
    scalar, bias = table.dtype.type, table.shape[1] - 1
    k = data.edges.starts[e]
    user, item = data.edges.rows[k], data.edges.rows[k + 1]
    mu_user, mu_item = scalar(data.mu_user), scalar(data.mu_item)
    error = prediction_error(table, data, e)
    slope = data.weights[e] * error
    users = items = scalar(0)
    for d in range(bias + 1):
        x, y = table[user, d], table[item, d]
        users += x * x
        items += y * y
        # the bias is multiplied by 1
        grads[0, d] = slope * (y if d < bias else scalar(1)) + mu_user * x
        grads[1, d] = slope * (x if d < bias else scalar(1)) + mu_item * y
    norm = mu_user * users + mu_item * items
    return 0.5 * (slope * error + norm), True


def objective(table: np.ndarray, data: Entries) -> float:
    """Return the mean of all edges' losses."""
    return _sums(table, data)[0] / len(data.targets)


def rmse(table: np.ndarray, data: Entries) -> float:
    """Return the root mean squared error of the entries, without weights."""
    return math.sqrt(_sums(table, data)[1] / len(data.targets))


@njit(nogil=True, cache=True)
def prediction_errors(table, data):
    """Return the predictions of all entries minus their values."""
    errors = np.empty(len(data.targets), table.dtype)
    for e in range(len(errors)):
        errors[e] = prediction_error(table, data, e)
    return errors


@njit(nogil=True, cache=True)
def _sums(table, data):
    loss = squares = 0.0
    for e in range(len(data.targets)):
        k = data.edges.starts[e]
        error = np.float64(prediction_error(table, data, e))
        users = items = 0.0
        for d in range(table.shape[1]):
            x = np.float64(table[data.edges.rows[k], d])
            y = np.float64(table[data.edges.rows[k + 1], d])
            users += x * x
            items += y * y
        norm = data.mu_user * users + data.mu_item * items
        loss += 0.5 * (data.weights[e] * error * error + norm)
        squares += error * error
    return loss, squares


class Products(NamedTuple):
    """Inner products of rows of users and items, whose columns are split over ranks.

    The products of a minibatch are followed by the sum of its norms. All ranks store
    the column of biases; only rank 0 adds biases and their norms.
    """

    data: Entries
    start_TxD: np.ndarray

    def split(self, rank: int, size: int) -> tuple[np.ndarray, Callable, Callable]:
        """Return the table of a rank's columns and the biases, terms and gradient.

        The terms are (table, batch) -> this rank's terms of the products and the norms.
        The gradient is (table, batch, products) -> mean loss, rows.
        """
        columns = np.array_split(self.start_TxD[:, :-1], size, axis=1)[rank]
        table_TxD = np.column_stack([columns, self.start_TxD[:, -1]])
        return table_TxD, partial(self.products, biases=rank == 0), self.gradient

    def products(
        self, table_TxD: np.ndarray, batch: RowBatch, biases: bool
    ) -> np.ndarray:
        rows_Bx2 = self.rows(batch)
        mus = (self.data.mu_user, self.data.mu_item)
        users_BxD, items_BxD = table_TxD[rows_Bx2[:, 0]], table_TxD[rows_Bx2[:, 1]]
        products_B = np.einsum("bd,bd->b", users_BxD[:, :-1], items_BxD[:, :-1])
        if biases:
            products_B += users_BxD[:, -1] + items_BxD[:, -1]
        norms = [
            mu * np.square(side[:, : None if biases else -1], dtype=np.float64).sum()
            for mu, side in zip(mus, (users_BxD, items_BxD), strict=True)
        ]
        return np.append(products_B, 0.5 * sum(norms))

    def gradient(
        self, table_TxD: np.ndarray, batch: RowBatch, products: np.ndarray
    ) -> tuple[float, Rows]:
        assert isinstance(batch.rows, np.ndarray)
        rows_Bx2 = self.rows(batch)
        scalar = table_TxD.dtype.type
        errors_B = products[:-1] - self.data.targets[batch.indices]
        slopes_B = self.data.weights[batch.indices] * errors_B
        loss = 0.5 * float(slopes_B @ errors_B) + float(products[-1])
        sums_NxD = np.zeros((len(batch.rows), table_TxD.shape[1]), scalar)
        for side, mu in enumerate((self.data.mu_user, self.data.mu_item)):
            others_BxD = table_TxD[rows_Bx2[:, 1 - side]]
            others_BxD[:, -1] = 1  # the bias is multiplied by 1
            slots = np.searchsorted(batch.rows, rows_Bx2[:, side])
            norm_BxD = scalar(mu) * table_TxD[rows_Bx2[:, side]]
            np.add.at(sums_NxD, slots, slopes_B[:, None] * others_BxD + norm_BxD)
        count = len(batch.indices)
        return loss / count, Rows(batch.rows, sums_NxD / scalar(count))

    def rows(self, batch: RowBatch) -> np.ndarray:
        """Return the rows of the user and the item of each example."""
        return self.data.edges.rows.reshape(-1, 2)[batch.indices]

    def join(self, tables: Sequence[np.ndarray]) -> np.ndarray:
        """Return the table of all columns from the tables of all ranks."""
        factors = (table[:, :-1] for table in tables)
        return np.column_stack([*factors, tables[0][:, -1]])


def with_products(problem: Problem) -> Problem:
    """Return a problem of Entries with its field `products`, to split columns."""
    products = Products(problem.kernel.data, problem.params)
    return problem._replace(products=products)


def optimum(data: Entries, start_TxD: np.ndarray, sweeps: int = 200) -> np.ndarray:
    """Return a local optimum by alternating least squares, in float64.

    Each step is exact, so the objective never increases. The objective is not convex:
    another start may lead to another optimum with a similar value.

    Args:
      data: The entries.
      start_TxD: Table of the start.
      sweeps: Maximum number of sweeps; a sweep solves for all users, then all items.
    """
    table_TxD = start_TxD.astype(np.float64)
    double = data._replace(
        targets=data.targets.astype(np.float64),
        weights=data.weights.astype(np.float64),
    )
    before = objective(table_TxD, double)
    for _ in range(sweeps):
        for side, mu in enumerate((data.mu_user, data.mu_item)):
            solve(table_TxD, double, side, mu)
        after = objective(table_TxD, double)
        if not before - after > TOLERANCE * before:  # true for NaN
            break
        before = after
    return table_TxD.astype(start_TxD.dtype)


def solve(table_TxD: np.ndarray, data: Entries, side: int, mu: float) -> None:
    """Set the rows of one side to the solution of their least squares problem.

    Args:
      table_TxD: The table, changed in place.
      data: The entries.
      side: 0 for users, 1 for items.
      mu: Weight of the norm of the side.
    """
    rows, slot_E = np.unique(data.edges.rows[side::2], return_inverse=True)
    systems_RxDxD, rhs_RxD = _systems(table_TxD, data, side, slot_E, len(rows))
    diagonal = np.arange(table_TxD.shape[1])
    counts = np.bincount(slot_E)
    systems_RxDxD[:, diagonal, diagonal] += mu * counts[:, None]
    # a row with fewer entries than elements is underdetermined: damp it towards its
    # current values
    damping_R = DAMPING * np.trace(systems_RxDxD, axis1=1, axis2=2)
    systems_RxDxD[:, diagonal, diagonal] += damping_R[:, None]
    rhs_RxD += damping_R[:, None] * table_TxD[rows]
    table_TxD[rows] = np.linalg.solve(systems_RxDxD, rhs_RxD[..., None])[..., 0]


@njit(nogil=True, cache=True)
def _systems(table, data, side, slot, count):
    """Return the normal equations of the rows of one side.

    Matrices and right-hand sides are sums over entries of w a aᵀ and w a (v - b), where
    a is the factors of the row on the other side, followed by 1, and b the bias of that
    row.

    Args:
      table: The table.
      data: The entries.
      side: 0 for users, 1 for items.
      slot: For each entry, the index of its row among the rows of the side.
      count: Number of rows of the side.
    """
    bias = table.shape[1] - 1
    systems = np.zeros((count, bias + 1, bias + 1))
    rhs = np.zeros((count, bias + 1))
    a = np.ones(bias + 1)
    for e in range(len(data.targets)):
        other, r = data.edges.rows[data.edges.starts[e] + 1 - side], slot[e]
        for d in range(bias):
            a[d] = table[other, d]
        residual = data.targets[e] - table[other, bias]
        for d in range(bias + 1):
            scaled = data.weights[e] * a[d]
            rhs[r, d] += scaled * residual
            for c in range(bias + 1):
                systems[r, d, c] += scaled * a[c]
    return systems, rhs
