"""GRADIENT of GloVe for parameter servers: a run of records in, a row a word out.

    row    | vector, zeros            | bias |      As the bias is the last number of a
             0 … dim                   R - 1        row, every loop goes over all of it.

⟨x, y⟩ of whole rows has the biases' product too many, which is taken off again.

Servers send rows without AdaGrad's squares, so the layout is not that of `problem`; the
order of sums is another, too. `tests/strategies/glove/test_server.py` compares both.
"""

import functools
from collections.abc import Callable
from operator import attrgetter

import numpy as np
from numba import njit

from dml.data.tiles import Tiles
from dml.types import Embeddings, Problem, Rows, Touching
from dml.update.rows import FAST, padded

HALF = np.float32(0.5)


def width(dim: int) -> int:
    """Return the floats of a row: so many fill whole registers."""
    return padded(dim + 1)


def packed(vectors_TxD: np.ndarray, biases_T: np.ndarray, fill: float) -> np.ndarray:
    """Return rows of a vector and a bias each, or of their squares."""
    rows, dim = vectors_TxD.shape
    table_TxR = np.full((rows, width(dim)), fill, np.float32)
    table_TxR[:, :dim] = vectors_TxD
    table_TxR[:, -1] = biases_T
    return table_TxR


def unpacked(values_TxR: np.ndarray, squares_TxR: np.ndarray, dim: int) -> Embeddings:
    """Copy rows and their squares out."""
    return Embeddings(
        values_TxR[:, :dim].copy(),
        values_TxR[:, -1].copy(),
        squares_TxR[:, :dim].copy(),
        squares_TxR[:, -1].copy(),
    )


def problem(state: Embeddings, tiles: Tiles, batch: int) -> Problem:
    """Return the problem of rows without squares.

    Gradients are not means, but as large as a whole minibatch's sum: AdaGrad sums them
    as it does in `serial`, whatever a worker's part of it is.

    state: the start value.
    tiles: the records; a batch is a run of them.
    batch: records of a minibatch.
    """
    start_TxR = packed(state.vectors_TxD, state.biases_T, 0)
    rows, count = len(start_TxR), len(tiles.logs)
    place = np.full(rows, -1, np.int32)  # memory of the kernels: -1 before and after
    grid = tiles.starts, tiles.grid.words, tiles.grid.contexts
    offsets = tiles.words, tiles.contexts
    gradients = kernel(start_TxR.shape[1])

    def first(start: int) -> int:
        return int(np.searchsorted(tiles.starts, start, "right")) - 1

    def take(indices: np.ndarray) -> Touching:
        start, stop = int(indices[0]), int(indices[-1]) + 1
        found = np.empty(min(rows, 2 * (stop - start)), np.int32)
        used = touch(grid, offsets, first(start), (start, stop), place, found)
        return Touching(indices, found[:used])

    def gradient(table_TxR: np.ndarray, records: Touching) -> tuple[float, Rows]:
        indices, at = records
        assert isinstance(at, np.ndarray)
        start, stop = int(indices[0]), int(indices[-1]) + 1
        whole = min(batch, count - start // batch * batch)
        scale = np.float32(whole / (stop - start))
        sums_NxR = np.zeros((len(at), table_TxR.shape[1]), np.float32)
        some = *offsets, tiles.logs, tiles.weights
        where, sums = (first(start), start, stop), (at, place, sums_NxR)
        loss = gradients(table_TxR, grid, some, where, scale, sums)
        return loss / (stop - start), Rows(at, sums_NxR)

    frequency = np.zeros(rows, np.int64)
    warm(grid, offsets, frequency)
    return Problem(
        start_TxR,
        count,
        gradient,
        lambda table_TxR: {},
        take,
        attrgetter("rows"),
        frequency,
    )


@njit(cache=True, nogil=True)
def warm(grid, offsets, heat):
    """Count the records of each row."""
    starts, firsts, seconds = grid
    words, contexts = offsets
    for tile in range(len(firsts)):
        for k in range(starts[tile], starts[tile + 1]):
            heat[firsts[tile] + words[k]] += 1
            heat[seconds[tile] + contexts[k]] += 1


@njit(cache=True, nogil=True)
def touch(grid, offsets, tile, records, place, found):
    """Find the rows of some records, in the order of their use; return how many."""
    starts, firsts, seconds = grid
    words, contexts = offsets
    start, stop = records
    used = 0
    while start < stop:
        while starts[tile + 1] <= start:
            tile += 1
        end = min(stop, starts[tile + 1])
        for k in range(start, end):
            for row in (firsts[tile] + words[k], seconds[tile] + contexts[k]):
                if place[row] < 0:
                    place[row], found[used] = used, row
                    used += 1
        start = end
    for n in range(used):
        place[found[n]] = -1
    return used


@functools.cache
def kernel(width: int) -> Callable[..., float]:
    """Compile for rows of so many floats: known lengths are faster."""
    last = width - 1

    @njit(fastmath=FAST, nogil=True, cache=True)
    def gradient(table_TxR, grid, records, where, scale, sums):
        starts, firsts, seconds = grid
        words, contexts, logs, weights = records
        tile, start, stop = where
        at, place, sums_NxR = sums
        for n in range(len(at)):
            place[at[n]] = n
        loss = 0.0
        while start < stop:
            while starts[tile + 1] <= start:
                tile += 1
            end = min(stop, starts[tile + 1])
            for k in range(start, end):
                word = firsts[tile] + words[k]
                context = seconds[tile] + contexts[k]
                x, y = table_TxR[word], table_TxR[context]
                to_x, to_y = sums_NxR[place[word]], sums_NxR[place[context]]
                product = np.float32(0)
                for d in range(width):
                    product += x[d] * y[d]
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
            start = end
        for n in range(len(at)):
            place[at[n]] = -1
        return loss

    return gradient
