"""The rows of a rank by node of a tree, and their bins.

    rows of a node   │ in the round │ others │      others: not in the sample, and
                     begin        used      end     rows of evaluation sets

A split reorders the rows of its node: those that go left come first, in stable order,
so that the others stay behind those in the round. Others take part in no sum; they only
follow the splits, so that their scores are known without a further pass.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from dml.boosting.bins import Bins, assign, hints_of
from dml.boosting.keys import BLOCK

AHEAD = 16  # rows


class Binned(NamedTuple):
    """Bins of all rows of a rank, in two layouts.

    Attributes:
      flat: Bins by row, `stride` bytes a row: one or a few cache lines.
      stride: Bytes of a row.
      columns_FxN: Bins by column.
    """

    flat: np.ndarray
    stride: int
    columns_FxN: np.ndarray


@intrinsic
def prefetch(context, array, index):
    """Load an element of an array into the cache."""
    from llvmlite import ir

    def code(generator, builder, signature, arguments):
        made = generator.make_array(signature.args[0])(generator, builder, arguments[0])
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        place = builder.bitcast(builder.gep(made.data, [arguments[1]]), byte)
        builder.call(function, [place, word(0), word(3), word(1)])
        return generator.get_dummy_value()

    return types.void(array, types.intp), code


def stride_of(columns: int) -> int:
    """Return the bytes of a row: a power of two up to 32, or a multiple of 32."""
    if columns > 16:
        return -(-columns // 32) * 32
    return 1 << max(columns - 1, 0).bit_length()


def bin_rows(bins: Bins, blocks: list[Any]) -> Binned:
    """Return the bins of blocks of rows, one behind the other."""
    count, columns = sum(len(x) for x in blocks), len(bins.counts)
    stride = stride_of(columns)
    columns_FxN = np.empty((columns, count), np.uint8)
    rows = np.zeros((count, stride), np.uint8)
    given = [
        (bins.of(f), hints_of(bins.of(f)), bins.categories[f], bins.counts[f])
        for f in range(columns)
    ]
    begin = 0
    for x in blocks:
        for first in range(0, len(x), BLOCK):
            some = x[first : first + BLOCK]
            made = columns_FxN[:, begin : begin + len(some)]
            for column, each, out in zip(some.T, given, made, strict=True):
                assign(column, *each, out)
            rows[begin : begin + len(some), :columns] = made.T
            begin += len(some)
    return Binned(rows.reshape(-1), stride, columns_FxN)


def sort_binned(binned: Binned, order: np.ndarray) -> None:
    """Store the first rows of a rank in another order, in place."""
    rows, columns_FxN = binned.flat.reshape(-1, binned.stride), binned.columns_FxN
    rows[: len(order)] = rows.take(order, axis=0)
    for begin in range(0, len(order), BLOCK):
        some = rows[begin : min(begin + BLOCK, len(order)), : len(columns_FxN)]
        columns_FxN[:, begin : begin + len(some)] = some.T


@njit(cache=True, nogil=True)
def flags_of(column, table, rows, out):
    """Write whether each row goes left, by the table of its bin."""
    for i in range(len(rows)):
        out[i] = table[column[rows[i]]]


@njit(cache=True, nogil=True)
def divide(rows, flags, scratch):
    """Move the rows with flag 1 to the front, in stable order; return their number."""
    left, right = np.int64(0), np.int64(0)
    for i in range(len(rows)):
        row, flag = rows[i], np.int64(flags[i])
        rows[left] = row
        scratch[right] = row
        left += flag
        right += 1 - flag
    for i in range(right):
        rows[left + i] = scratch[i]
    return left


@njit(cache=True, nogil=True)
def sum_rows(rows, fine):
    """Return the sums of the FINE numbers of rows; `fine` has g and h of each row."""
    g = h = np.int64(0)
    for i in range(len(rows)):
        if i + AHEAD < len(rows):
            prefetch(fine, 2 * np.int64(rows[i + AHEAD]))
        g += fine[2 * np.int64(rows[i])]
        h += fine[2 * np.int64(rows[i]) + 1]
    return g, h


@njit(cache=True, nogil=True)
def sum_packed(rows, packed):
    """Return the sums of the COARSE numbers of rows."""
    g, h = np.int64(0), np.int64(0)
    for i in range(len(rows)):
        value = packed[rows[i]]
        g += value >> 32
        h += value & 0xFFFFFFFF
    return g, h


@njit(cache=True, nogil=True)
def add_value(scores_NxK, c, rows, value):
    """Add the value of a leaf to the scores of its rows."""
    width = scores_NxK.shape[1]
    for i in range(len(rows)):
        if i + AHEAD < len(rows):
            prefetch(scores_NxK, np.int64(rows[i + AHEAD]) * width + c)
        scores_NxK[rows[i], c] += value
