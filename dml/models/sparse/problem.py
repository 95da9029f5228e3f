"""The Problem of a sparse model, its minibatches, and default functions of a model.

    minibatch ── edge ──→ gradient of its rows ──┐
                 edge ──→ gradient of its rows ──┴─ / examples ──→ Rows

With the default functions (`descend`, `zero_decay`, `same_data` and `leave_table`) an
update is a step of gradient descent, and the table contains the parameters.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
from numba import njit

from dml.types import Edges, Kernel, Problem, RowBatch, Rows, SparseModel


def problem(
    model: SparseModel,
    data: Any,
    start: np.ndarray,
    evaluate: Callable[[np.ndarray], Mapping[str, Any]] = lambda table: {},
) -> Problem:
    """Return the problem of a sparse model; each edge is an example.

    Strategies that call `gradient` use a table of shape T in the shape Tx1.

    Args:
      model: A module with the functions of `dml.types.SparseModel`.
      data: Data of the model; the first field is `edges`.
      start: Table before the first update.
      evaluate: table -> measures by name.
    """
    frequency = np.bincount(data.edges.rows, minlength=len(start))
    sparse = row_problem(
        start,
        data.edges,
        Minibatches(model, data, frequency),
        lambda table: evaluate(table.reshape(start.shape)),
        frequency,
    )._replace(kernel=Kernel(data, model))
    if start.ndim > 1:
        return sparse
    return sparse._replace(table=lambda: sparse._replace(params=start[:, None]))


def row_problem(
    start: np.ndarray,
    edges: Edges,
    gradient: Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[float, np.ndarray]],
    evaluate: Callable[[np.ndarray], Mapping[str, Any]],
    frequency: np.ndarray,
    ascending: bool = True,
) -> Problem:
    """Return the problem of a table, where a minibatch touches few rows.

    Args:
      start: Table before the first update.
      edges: The rows of each example.
      gradient: (table, indices, rows) -> the mean loss and the gradient of these rows.
      evaluate: table -> measures by name.
      frequency: Number of examples that touch each row.
      ascending: Whether the rows of a minibatch are sorted; otherwise they are in the
        order in which the examples touch them.
    """

    def take(indices: np.ndarray) -> RowBatch:
        rows = distinct_rows(edges, np.asarray(indices, np.int64), len(start))
        return RowBatch(indices, np.sort(rows) if ascending else rows)

    def row_gradient(table: np.ndarray, batch: RowBatch) -> tuple[float, Rows]:
        assert isinstance(batch.rows, np.ndarray)
        loss, values = gradient(table, batch.indices, batch.rows)
        return loss, Rows(batch.rows, values.reshape(len(values), -1))

    return Problem(
        start,
        len(edges.starts) - 1,
        row_gradient,
        evaluate,
        take,
        attrgetter("rows"),
        frequency,
    )


@njit(nogil=True, cache=True)
def distinct_rows(edges, indices, table_rows):
    """Return the distinct rows of the edges `indices`, in order of appearance."""
    seen = np.zeros(table_rows, np.bool_)
    rows = np.empty(table_rows, np.int64)
    count = 0
    for e in indices:
        for k in range(edges.starts[e], edges.starts[e + 1]):
            if not seen[edges.rows[k]]:
                seen[edges.rows[k]] = True
                rows[count] = edges.rows[k]
                count += 1
    return rows[:count].copy()


class Minibatches:
    """Computes gradients of a sparse model over minibatches.

    A norm that `settle` of the model applies is here divided among the edges of each
    row: Σ_e ½ μ n/d_r x_r² over the rows r of an edge, where d_r of all n edges have
    the row (HOGWILD!, Niu 2011, equation 4). Thus a minibatch's gradient is sparse, and
    the mean over all edges is the gradient of the objective.

    Args:
      model: A module with the functions of `dml.types.SparseModel`.
      data: Data of the model.
      frequency: Number of edges of each row.
    """

    def __init__(self, model: SparseModel, data: Any, frequency: np.ndarray):
        self.model, self.data, self.frequency = model, data, frequency

    @cached_property
    def fixed(self) -> tuple[Any, np.ndarray | None]:
        """Data for rate 0, where the table contains the parameters; μ n/d_r per row.

        The second value is None if μ = 0.
        """
        mu, examples = self.model.decay(self.data), len(self.data.edges.starts) - 1
        shares_T = mu * examples / np.maximum(self.frequency, 1)
        return self.model.with_rate(self.data, 0.0), shares_T if mu else None

    def __call__(
        self, table: np.ndarray, indices: np.ndarray, rows: np.ndarray
    ) -> tuple[float, np.ndarray]:
        """Return the mean loss, and the gradient of these rows."""
        data, shares_T = self.fixed
        if table.shape[1:] == (1,):
            table = table[:, 0]
        sums = np.zeros((len(rows), *table.shape[1:]), table.dtype)
        total_loss, counts_N = sum_gradients(
            self.model.gradient, table, data, indices, rows, sums
        )
        sums_NxD = sums.reshape(len(rows), -1)
        if shares_T is not None:
            weights_Nx1 = (shares_T[rows] * counts_N).astype(table.dtype)[:, None]
            values_NxD = table[rows].reshape(sums_NxD.shape)
            sums_NxD += weights_Nx1 * values_NxD
            total_loss += 0.5 * float((weights_Nx1 * values_NxD**2).sum())
        count = max(1, len(indices))
        return total_loss / count, sums_NxD / table.dtype.type(count)


# No cache=True: numba's cache on disk would not notice a change of the model.
@njit(nogil=True)
def sum_gradients(gradient, table, data, indices, rows, sums):
    """Add the gradients of edges to the sums of their rows.

    Args:
      gradient: Gradient of the model.
      table: The table.
      data: Data of the model.
      indices: Indices of the edges.
      rows: Distinct rows of these edges.
      sums: Sums of the gradients of `rows`; updated in place.

    Returns:
      The summed loss, and the number of these edges that touch each of `rows`.
    """
    starts, total_loss, max_rows = data.edges.starts, 0.0, 0
    slot = np.empty(len(table), np.int64)  # only the entries of `rows` are used
    for n in range(len(rows)):
        slot[rows[n]] = n
    for e in indices:
        max_rows = max(max_rows, starts[e + 1] - starts[e])
    grads = np.empty((max_rows,) + table.shape[1:], table.dtype)
    counts = np.zeros(len(rows), np.int64)
    for t in range(len(indices)):
        e = indices[t]
        loss, nonzero = gradient(table, data, e, t, grads)
        total_loss += loss
        for k in range(starts[e], starts[e + 1]):
            n = slot[data.edges.rows[k]]
            counts[n] += 1
            if nonzero:
                sums[n] += grads[k - starts[e]]
    return total_loss, counts


@njit(nogil=True, cache=True, forceinline=True)
def dot(x_NxD, i, y_MxD, j, width):
    """Return ⟨x_i, y_j⟩ over the first `width` columns, in four independent sums.

    `svm.score` is the same for sparse rows.
    """
    one = two = three = four = x_NxD.dtype.type(0)
    d = 0
    while d + 3 < width:
        one += x_NxD[i, d] * y_MxD[j, d]
        two += x_NxD[i, d + 1] * y_MxD[j, d + 1]
        three += x_NxD[i, d + 2] * y_MxD[j, d + 2]
        four += x_NxD[i, d + 3] * y_MxD[j, d + 3]
        d += 4
    while d < width:
        one += x_NxD[i, d] * y_MxD[j, d]
        d += 1
    return (one + two) + (three + four)


@njit(nogil=True, cache=True)
def descend(table, row, grads, s, rate):
    """Replace the gradient grads[s] of a row by the change of the row."""
    if grads.ndim == 1:
        grads[s] *= -rate
    else:
        for d in range(grads.shape[1]):
            grads[s, d] *= -rate


def zero_decay(data: Any) -> float:
    """Return 0: the gradients of edges include the norm, or the model has none."""
    return 0.0


def same_data(data: Any, rate: float) -> Any:
    """Return the data unchanged, because they do not depend on the rate."""
    return data


def leave_table(table: np.ndarray, data: Any, steps: int) -> None:
    """Do nothing: the table contains the parameters."""
