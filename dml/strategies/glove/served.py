"""GloVe on parameter servers: rows without AdaGrad's squares, a row per word.

    row    | vector, zeros            | bias |      The bias is the last number, so
             0 … dim                   R - 1        that loops run over the full row.

Words sent per minibatch: the touched rows of each part, pulled and pushed, and their
row numbers. A worker has two tables of rows: the start value and its copy.

Layout and order of sums differ from those of `problem`;
`tests/strategies/glove/test_server.py` compares both.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
from numba import njit

from dml.data.text.tiles import Tiles
from dml.models.networks.glove import Records
from dml.strategies.glove.problem import minibatches, take
from dml.strategies.server.server import server
from dml.types import Embeddings, Problem, Rows, Step
from dml.update.rows import FAST, HALF, dot, pack, padded_length
from dml.update.table import Table, table

CHUNK = 1 << 20  # records whose rows are counted at once
Batch = tuple[np.ndarray, Records, np.ndarray]  # indices, records, rows of the table


def width(dim: int) -> int:
    """Return the number of floats in a row, padded to full SIMD registers."""
    return padded_length(dim + 1)


def packed(vectors_TxD: np.ndarray, biases_T: np.ndarray, fill: float) -> np.ndarray:
    """Return rows of vectors and biases, or of their squares."""
    rows, dim = vectors_TxD.shape
    table_TxR = np.full((rows, width(dim)), fill, np.float32)
    table_TxR[:, :dim] = vectors_TxD
    table_TxR[:, -1] = biases_T
    return table_TxR


def squares(state: Embeddings) -> np.ndarray:
    """Return the rows of AdaGrad's squares."""
    return packed(state.vector_squares_TxD, state.bias_squares_T, 1)


def unpacked(values_TxR: np.ndarray, squares_TxR: np.ndarray, dim: int) -> Embeddings:
    """Return the state from rows and their squares."""
    return Embeddings(
        values_TxR[:, :dim], values_TxR[:, -1], squares_TxR[:, :dim], squares_TxR[:, -1]
    )


def adagrad(dim: int, rate: float) -> Callable[[np.ndarray], Table]:
    """Return the rule of rows; a bias has rate 1."""
    return partial(table, "glove", rate=[rate] * (width(dim) - 1) + [1])


def on_servers(
    problem: Problem, batches: Iterable[np.ndarray], rate: float, **own: Any
) -> Iterator[Step]:
    """Train GloVe by `server`, a Step per epoch; params are tables as in `problem`."""
    state = problem.products.state
    dim, update = problem.products.dim, adagrad(problem.products.dim, rate)
    for step in server(problem, batches, update, state=[squares(state)], **own):
        yield step._replace(params=partial(collected, step, dim))


def collected(step: Step, dim: int) -> np.ndarray | None:
    """Return the table with its squares on rank 0, None elsewhere; collective."""
    values_TxR, (squares_TxR,) = step.params(), step.state()
    return None if values_TxR is None else pack(unpacked(values_TxR, squares_TxR, dim))


def problem(state: Embeddings, tiles: Tiles, batch: int) -> Problem:
    """Return the problem of rows without squares.

    The gradient of a part is scaled to the sum over a full minibatch, not to the mean:
    AdaGrad's squares are then those of `serial`, for parts of any size.

    Args:
      state: Start value.
      tiles: The records; a batch consists of consecutive records.
      batch: Number of records in a minibatch.
    """
    start_TxR = packed(state.vectors_TxD, state.biases_T, 0)
    rows, count = len(start_TxR), len(tiles.logs)
    place, gradients = np.empty(rows, np.int32), kernel(start_TxR.shape[1])

    def taken(indices: np.ndarray) -> Batch:
        records, touched = take(tiles, indices), np.zeros(rows, bool)
        touched[records.words] = touched[records.contexts] = True
        return indices, records, np.flatnonzero(touched).astype(np.int32)

    def gradient(table_TxR: np.ndarray, part: Batch) -> tuple[float, Rows]:
        indices, records, at = part
        minibatch = min(batch, count - int(indices[0]) // batch * batch)
        scale = np.float32(minibatch / len(indices))
        place[at] = np.arange(len(at))
        sums_NxR = np.zeros((len(at), table_TxR.shape[1]), np.float32)
        loss = gradients(table_TxR, *records, scale, place, sums_NxR)
        return loss / len(indices), Rows(at, sums_NxR)

    frequency = np.zeros(rows, np.int64)
    for indices in minibatches(count, CHUNK):
        for row_numbers in take(tiles, indices)[:2]:
            frequency += np.bincount(row_numbers, minlength=rows)
    return Problem(
        start_TxR,
        count,
        gradient,
        lambda table_TxR: {},
        taken,
        itemgetter(2),
        frequency,
    )


@functools.cache
def kernel(width: int) -> Callable[..., float]:
    """Compile for rows of `width` floats: constant lengths are faster."""
    last = width - 1

    @njit(fastmath=FAST, nogil=True, cache=True)
    def gradient(table_TxR, words, contexts, logs, weights, scale, place, sums_NxR):
        loss = 0.0
        for k in range(len(words)):
            x, y = table_TxR[words[k]], table_TxR[contexts[k]]
            to_x, to_y = sums_NxR[place[words[k]]], sums_NxR[place[contexts[k]]]
            # order matters for the bits; the dot product includes that of the biases
            product = dot(x, y, width)
            both = x[last] + y[last] - x[last] * y[last]
            miss = product + both - logs[k]
            grad = weights[k] * miss
            loss += HALF * grad * miss
            grad *= scale
            x_bias, y_bias = to_x[last] + grad, to_y[last] + grad
            for d in range(width):
                to_x[d] += grad * y[d]
                to_y[d] += grad * x[d]
            to_x[last], to_y[last] = x_bias, y_bias
        return loss

    return gradient
