"""GloVe as a Problem: co-occurrence records in tiles, and a table of rows.

A row of the table consists of the vector, the bias and AdaGrad's squares of both
(`dml.update.rows`). A minibatch is a range of consecutive records, an epoch an order of
the tiles.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from dml.data.text.tiles import Blocks, Tiles
from dml.models.networks.glove import Records
from dml.strategies.glove.descend import descend
from dml.types import BadInput, Embeddings, Kernel, Problem, Rows
from dml.update.rows import FAST, LANES, dot, pack, pad_of, padded_length, unpack
from dml.wire.memory.state import Order


def problem(
    state: Embeddings,
    tiles: Tiles,
    blocks: Blocks,
    batch: int = 1,
    evaluate: Callable[[np.ndarray], Mapping[str, Any]] = lambda table: {},
) -> Problem:
    """Return the problem of these records; gradients are those of a summed loss.

    Args:
      state: Start value; its rows are in the order of the tiles.
      tiles: The records, in the order of an epoch.
      blocks: The words of each block.
      batch: Greatest number of records in a minibatch.
      evaluate: table -> measures by name.
    """
    rows, dim = state.vectors_TxD.shape
    return Problem(
        pack(state),
        len(tiles.logs),
        Gradient(rows, dim, batch),
        evaluate,
        partial(take, tiles),
        kernel=kernel(tiles, blocks, rows),
        products=Products(state, batch),
        table=partial(of_servers, state, tiles, batch),
        sums=True,
    )


def of_servers(state: Embeddings, tiles: Tiles, batch: int) -> Problem:
    """Return the problem for servers, with rows without AdaGrad's squares."""
    from dml.strategies.glove.served import problem

    return problem(state, tiles, batch)


def kernel(tiles: Tiles, blocks: Blocks, rows: int) -> Kernel:
    """Return the fused kernel; its blocks of examples are tiles."""
    words = len(blocks.row)
    return Kernel(
        tiles,
        fused=descend,
        sizes=np.diff(tiles.starts),
        blocks=[
            slice(first + side, last + side)
            for side in range(0, rows, words)
            for first, last in pairwise(blocks.edges)
        ],
        sides=rows // words,
    )


def columns(dim: int) -> tuple[slice, ...]:
    """Return the columns of gradients that are not padding: vector and bias."""
    return slice(0, dim), slice(padded_length(dim), padded_length(dim) + 1)


def minibatches(count: int, batch: int) -> Iterator[np.ndarray]:
    """Yield the indices of each minibatch of an epoch; the last may be shorter."""
    for start in range(0, count, batch):
        yield np.arange(start, min(start + batch, count))


def order(tiles: Tiles) -> Order:
    """Return the order of an epoch: all tiles, a part for each cell."""
    bounds = [0, *(cell.stop for cell in tiles.grid.cells.values())]
    visits = np.arange(len(tiles.starts) - 1)
    return Order(visits, 0, len(tiles.logs), np.array(bounds))


def take(tiles: Tiles, indices: Sequence[int] | np.ndarray) -> Records:
    """Return consecutive records, with their rows in the table."""
    start, stop = int(indices[0]), int(indices[-1]) + 1
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


class Gradient:
    """The gradient function; owns the memory in which rows' gradients are summed."""

    def __init__(self, rows: int, dim: int, batch: int):
        self.rows, self.dim, self.most = rows, dim, min(rows, 2 * batch)

    @functools.cached_property
    def memory(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Slots (row -> index of its sum, or -1), rows and sums."""
        values = np.empty((self.most, padded_length(self.dim) + LANES), np.float32)
        slot = np.full(self.rows, -1, np.int32)
        return slot, np.empty(self.most, np.int32), values

    def __call__(self, table_TxR: np.ndarray, records: Records) -> tuple[float, Rows]:
        """Return the mean loss, and the summed gradients of the records' rows."""
        return self.of_products(table_TxR, records, products(table_TxR, records))

    def of_products(
        self, table_TxR: np.ndarray, records: Records, products: np.ndarray
    ) -> tuple[float, Rows]:
        """Return the loss and the gradients from the products of all records.

        The gradients are valid until the next call.
        """
        misses = products - records.logs
        slopes = records.weights * misses
        loss = 0.5 * float(np.dot(slopes, misses)) / len(misses)
        _, index, values = self.memory
        used = kernels(pad_of(table_TxR)).summed(
            table_TxR, records.words, records.contexts, slopes, *self.memory
        )
        return loss, Rows(index[:used], values[:used])


def products(
    table_TxR: np.ndarray, records: Records, biases: bool = True
) -> np.ndarray:
    """Return ⟨x, y⟩ of each record, plus both biases if `biases`."""
    out = np.empty(len(records.logs), np.float32)
    kernels(pad_of(table_TxR)).products(
        table_TxR, records.words, records.contexts, np.float32(biases), out
    )
    return out


class Products(NamedTuple):
    """The inner products of GloVe, whose columns are split over ranks."""

    state: Embeddings
    batch: int

    @property
    def dim(self) -> int:
        return self.state.vectors_TxD.shape[1]

    def split(self, rank: int, size: int) -> tuple[np.ndarray, Callable, Callable]:
        """Return the table of a rank's columns and all biases, terms and gradient.

        The terms are (table, records) -> this rank's terms of all products. The
        gradient is (table, records, products) -> the mean loss, and summed rows.
        """
        rows, dim = len(self.state.biases_T), self.dim
        if dim % size:
            raise BadInput(
                f"expected dimensions that {size} ranks can share equally, got {dim}; "
                f"pass --dim=<a multiple of {size}>"
            )
        dim //= size
        columns = slice(rank * dim, (rank + 1) * dim)
        vectors_TxD, biases, squares_TxD, bias_squares = self.state
        part = Embeddings(
            vectors_TxD[:, columns], biases, squares_TxD[:, columns], bias_squares
        )
        terms = partial(products, biases=rank == 0)
        return pack(part), terms, Gradient(rows, dim, self.batch).of_products

    def join(self, tables: Sequence[np.ndarray]) -> np.ndarray:
        """Return the table of all columns from the tables of all ranks."""
        parts = (unpack(table, self.dim // len(tables)) for table in tables)
        vectors, biases, squares, bias_squares = zip(*parts, strict=True)
        columns = np.hstack(vectors), biases[0], np.hstack(squares), bias_squares[0]
        return pack(Embeddings(*columns))


class Kernels(NamedTuple):
    products: Callable[..., None]
    summed: Callable[..., int]


@functools.cache
def kernels(pad: int) -> Kernels:
    """Compile for vectors of `pad` floats: constant lengths are faster."""

    @njit(fastmath=FAST, nogil=True, cache=True)
    def products(table_TxR, words, contexts, biases, out):
        for k in range(len(words)):
            x, y = table_TxR[words[k]], table_TxR[contexts[k]]
            out[k] = dot(x, y, pad) + biases * (x[2 * pad] + y[2 * pad])

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
