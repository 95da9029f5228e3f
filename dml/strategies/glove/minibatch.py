"""One worker, a minibatch a step of AdaGrad: the reference of the synchronous ways.

    records ─► products ⟨x, y⟩ ─► grads w · miss ─► rows, equal ones summed ─► AdaGrad

A minibatch is the next so many records of the tiles, which share few rows.
"""

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numba import njit

from dml.data.tiles import Tiles
from dml.metrics.timer import Timer
from dml.models.glove import Records
from dml.types import Embeddings, Rows, Step, nothing
from dml.update.rows import FAST, LANES, adagrad, pack, pad_of, padded, unpack, width


def minibatch(
    state: Embeddings,
    tiles: Tiles,
    rate: float,
    timer: Timer,
    *,
    batch: int,
    epoch: int = 0,
    work: Callable[[float], object] = nothing,
) -> Iterator[Step]:
    """Train for ever, an epoch a step; each of its minibatches has `batch` records."""
    rows, dim = state.vectors_TxD.shape
    table = np.empty((rows, width(dim)), np.float32)
    pack(state, table)
    sums = Sums(rows, dim, batch)
    count = len(tiles.logs)
    while True:
        epoch, loss = epoch + 1, 0.0
        for records in batches(tiles, batch):
            with timer("gradient"):
                grads, lost = missed(products(table, records), records)
                found = summed(table, records, grads, sums)
                work(1)
            with timer("update"):
                adagrad(table, found, rate)
            loss += lost
        yield Step(
            epoch, loss / count, lambda: unpack(table, dim), count, timer.lap(), 0
        )


def batches(tiles: Tiles, batch: int) -> Iterator[Records]:
    """Yield an epoch's minibatches; the last one may be shorter."""
    for start in range(0, len(tiles.logs), batch):
        yield part(tiles, start, min(start + batch, len(tiles.logs)))


def part(tiles: Tiles, start: int, stop: int) -> Records:
    """Return some of the records, with their rows in the table."""
    words, contexts = np.empty((2, stop - start), np.int32)
    first = np.searchsorted(tiles.starts, start, "right") - 1
    place(
        (tiles.starts, tiles.grid.words, tiles.grid.contexts),
        (tiles.words, tiles.contexts),
        first,
        start,
        (words, contexts),
    )
    return Records(words, contexts, tiles.logs[start:stop], tiles.weights[start:stop])


@njit(cache=True, nogil=True)
def place(tiles, offsets, tile, start, out):
    starts, first_words, first_contexts = tiles
    words, contexts = offsets
    for n in range(len(out[0])):
        while starts[tile + 1] <= start + n:
            tile += 1
        out[0][n] = first_words[tile] + words[start + n]
        out[1][n] = first_contexts[tile] + contexts[start + n]


def missed(found: np.ndarray, records: Records) -> tuple[np.ndarray, float]:
    """Return the gradient of each product, and the loss of all records."""
    misses = found - records.logs
    grads = records.weights * misses
    return grads, 0.5 * float(np.dot(grads, misses))


def products(
    table_TxR: np.ndarray, records: Records, biases: bool = True
) -> np.ndarray:
    """Return ⟨x, y⟩ of each record, with both biases or without."""
    found = np.empty(len(records.logs), np.float32)
    kernels(pad_of(table_TxR)).products(
        table_TxR, records.words, records.contexts, np.float32(biases), found
    )
    return found


class Sums:
    """Owns the memory in which the gradients of equal rows are added up."""

    def __init__(self, rows: int, dim: int, batch: int):
        most = min(rows, 2 * batch)
        self.slot = np.full(rows, -1, np.int32)  # where a row's sum is, if anywhere
        self.index = np.empty(most, np.int32)
        self.values = np.empty((most, padded(dim) + LANES), np.float32)


def summed(
    table_TxR: np.ndarray, records: Records, grads: np.ndarray, sums: Sums
) -> Rows:
    """Return the gradients of the rows, vector then bias, in the order of their use."""
    found = kernels(pad_of(table_TxR)).summed(
        table_TxR, records.words, records.contexts, grads, *vars(sums).values()
    )
    return Rows(sums.index[:found], sums.values[:found])


class Kernels(NamedTuple):
    products: Callable[..., None]
    summed: Callable[..., int]


@functools.cache
def kernels(pad: int) -> Kernels:
    """Compile for vectors of so many floats: known lengths are faster."""

    @njit(fastmath=FAST, nogil=True, cache=True)
    def products(table_TxR, words, contexts, biases, found):
        for k in range(len(words)):
            x, y = table_TxR[words[k]], table_TxR[contexts[k]]
            product = np.float32(0)
            for d in range(pad):
                product += x[d] * y[d]
            found[k] = product + biases * (x[2 * pad] + y[2 * pad])

    @njit(fastmath=FAST, nogil=True, cache=True)
    def summed(table_TxR, words, contexts, grads, slot, index, values):
        used = 0
        for k in range(len(words)):
            for row in (words[k], contexts[k]):
                if slot[row] < 0:
                    slot[row], index[used] = used, row
                    values[used] = 0
                    used += 1
            x, y = table_TxR[words[k]], table_TxR[contexts[k]]
            to_x, to_y = values[slot[words[k]]], values[slot[contexts[k]]]
            for d in range(pad):
                to_x[d] += grads[k] * y[d]
                to_y[d] += grads[k] * x[d]
            to_x[pad] += grads[k]
            to_y[pad] += grads[k]
        for n in range(used):
            slot[index[n]] = -1
        return used

    return Kernels(products, summed)
