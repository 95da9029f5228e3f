"""The Problem of a sparse model, its minibatches, and defaults of a model.

    minibatch ── edge ──→ gradient of its rows ──┐
                 edge ──→ gradient of its rows ──┴─ / examples ──→ Rows

By default rows move down their gradient, and the table is the parameters themselves.
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

    Strategies with a gradient use a table of T numbers in the shape Tx1.

    Args:
      model: A module with the functions of `dml.types.SparseModel`.
      data: Data of the model; the first field is `edges`.
      start: Table before the first update.
      evaluate: table -> measures by name.
    """
    frequency = np.bincount(data.edges.rows, minlength=len(start))
    sparse = of_rows(
        start,
        data.edges,
        Minibatches(model, data, frequency),
        lambda table: evaluate(table.reshape(start.shape)),
        frequency,
    )._replace(kernel=Kernel(data, model))
    if start.ndim > 1:
        return sparse
    return sparse._replace(table=lambda: sparse._replace(params=start[:, None]))


def of_rows(
    start: np.ndarray,
    edges: Edges,
    gradient: Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[float, np.ndarray]],
    evaluate: Callable[[np.ndarray], Mapping[str, Any]],
    frequency: np.ndarray,
    ascending: bool = True,
) -> Problem:
    """Return the problem of a table of which a minibatch touches few rows.

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
        rows = touched(edges, np.asarray(indices, np.int64), len(start))
        return RowBatch(indices, np.sort(rows) if ascending else rows)

    def row_gradient(table: np.ndarray, batch: RowBatch) -> tuple[float, Rows]:
        assert isinstance(batch.rows, np.ndarray)
        loss, values = gradient(table, batch.indices, batch.rows)
        return loss, Rows(batch.rows, values.reshape(len(values), -1))

    examples, by_rows = len(edges.starts) - 1, attrgetter("rows")
    return Problem(start, examples, row_gradient, evaluate, take, by_rows, frequency)


@njit(nogil=True, cache=True)
def touched(edges, indices, count):
    """Return the distinct rows of some edges, in order of appearance."""
    seen, rows, used = np.zeros(count, np.bool_), np.empty(count, np.int64), 0
    for e in indices:
        for k in range(edges.starts[e], edges.starts[e + 1]):
            if not seen[edges.rows[k]]:
                seen[edges.rows[k]] = True
                rows[used] = edges.rows[k]
                used += 1
    return rows[:used].copy()


class Minibatches:
    """Computes gradients of a sparse model over minibatches; owns the memory.

    A norm that `settle` of the model applies is here divided among the edges of each
    row: Σ_e ½ μ n/d_r x_r² over the rows r of an edge, where d_r of all n edges have
    the row (HOGWILD!, Niu 2011, equation 4). Thus a minibatch's gradient is
    sparse, and the mean over all edges is the gradient of the objective.

    Args:
      model: A module with the functions of `dml.types.SparseModel`.
      data: Data of the model.
      frequency: Number of edges of each row.
    """

    def __init__(self, model: SparseModel, data: Any, frequency: np.ndarray):
        self.model, self.data, self.frequency = model, data, frequency

    @cached_property
    def fixed(self) -> tuple[Any, np.ndarray | None]:
        """Data with the table as parameters; μ n/d of each row, or None if μ = 0."""
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
        lost, times_N = add_up(self.model.gradient, table, data, indices, rows, sums)
        sums_NxD = sums.reshape(len(rows), -1)
        if shares_T is not None:
            weights_Nx1 = (shares_T[rows] * times_N).astype(table.dtype)[:, None]
            values_NxD = table[rows].reshape(sums_NxD.shape)
            sums_NxD += weights_Nx1 * values_NxD
            lost += 0.5 * float((weights_Nx1 * values_NxD**2).sum())
        count = max(1, len(indices))
        return lost / count, sums_NxD / table.dtype.type(count)


# cache=False: numba's cache on disk would not notice a change of the model.
@njit(nogil=True)
def add_up(gradient, table, data, indices, rows, sums):
    """Add the gradients of edges to the sums of their rows.

    Args:
      gradient: Gradient of the model.
      table: The table.
      data: Data of the model.
      indices: Numbers of the edges.
      rows: Rows of the edges.
      sums: Sum of the gradients of each of the rows; updated.

    Returns:
      The summed loss, and the number of edges with each of the rows.
    """
    starts, lost, most = data.edges.starts, 0.0, 0
    slot = np.empty(len(table), np.int64)  # only the entries of `rows` are used
    for n in range(len(rows)):
        slot[rows[n]] = n
    for e in indices:
        most = max(most, starts[e + 1] - starts[e])
    grads = np.empty((most,) + table.shape[1:], table.dtype)
    times = np.zeros(len(rows), np.int64)
    for t in range(len(indices)):
        e = indices[t]
        loss, moves = gradient(table, data, e, t, grads)
        lost += loss
        for k in range(starts[e], starts[e + 1]):
            n = slot[data.edges.rows[k]]
            times[n] += 1
            if moves:
                sums[n] += grads[k - starts[e]]
    return lost, times


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
    """Replace the gradient grads[s] of a row by its change: -rate · gradient."""
    if grads.ndim == 1:
        grads[s] *= -rate
    else:
        for d in range(grads.shape[1]):
            grads[s, d] *= -rate


def zero_decay(data: Any) -> float:
    """Return 0: the gradients of edges include the norm, or there is none."""
    return 0.0


def same_data(data: Any, rate: float) -> Any:
    """Return the data, for any rate."""
    return data


def leave_table(table: np.ndarray, data: Any, steps: int) -> None:
    """Do nothing: the table is the parameters."""
