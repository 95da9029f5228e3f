"""Sparse rows of a rank: only values outside of the bin of zero are stored.

    row 0 │ 5 · · 2 ·         codes of a row, ascending: first code of the column + bin
    row 1 │ · · 7 · ·         · : the bin of zero of its column

The sum of a node in the bin of zero is the sum of the node minus those in the other
bins of the column. So a histogram takes time for the nonzeros of the node's rows, and
for the slots; both are stored by row, because a node has few of the rows. The bin of a
row in one column is found by bisection of its codes.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from scipy import sparse

from dml.boosting.bins import Bins
from dml.boosting.keys import starts_of
from dml.boosting.rows import AHEAD, prefetch

MASK = 0xFFFFFFFF


class SparseRows(NamedTuple):
    """Bins of all rows of a rank.

    Attributes:
      starts: First code of each row, and their number.
      codes: firsts[column] + bin of each stored value.
      firsts: First code of each column, and the end; a code is kept for a missing value
        in every column.
      zeros: Bin of zero of each column.
    """

    starts: np.ndarray
    codes: np.ndarray
    firsts: np.ndarray
    zeros: np.ndarray


def canonical(x: Any) -> Any:
    """Return a sparse matrix as CSR with distinct, ascending columns in each row."""
    rows = sparse.csr_array(x)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def bin_sparse(bins: Bins, blocks: list[Any]) -> SparseRows:
    """Return the bins of blocks of rows, one behind the other."""
    firsts, columns = starts_of(bins.counts + 1), len(bins.counts)
    zeros = np.empty(columns, np.uint8)
    find_bins(bins, np.arange(columns), np.zeros(columns), zeros)
    kind = np.int32 if firsts[-1] < 1 << 31 else np.int64
    codes, lengths = [np.zeros(0, kind)], [np.zeros(0, np.int64)]
    for x in blocks:
        found = np.empty(x.nnz, np.uint8)
        find_bins(bins, x.indices, x.data, found)
        stored = found != zeros[x.indices]
        codes.append((firsts[x.indices[stored]] + found[stored]).astype(kind))
        lengths.append(np.diff(starts_of(stored)[x.indptr]))
    starts = starts_of(np.concatenate(lengths))
    return SparseRows(starts, np.concatenate(codes), firsts, zeros)


@njit(cache=True, nogil=True)
def first_not_below(ordered, low, high, value):
    """Return the first place in low … high - 1 that is not below a value, else high."""
    while low < high:
        middle = (low + high) // 2
        if ordered[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def find_bins(bins, columns, values, out):
    """Write the bin of each value of a column, as `bins.assign` does."""
    for i in range(len(values)):
        f, value = columns[i], np.float64(values[i])
        if value != value:
            out[i] = bins.counts[f]
            continue
        low, end = bins.starts[f], bins.starts[f + 1]
        low = first_not_below(bins.edges, low, end, value)
        out[i] = low - bins.starts[f]
        if bins.categories[f] and (low == end or bins.edges[low] != value):
            out[i] = bins.counts[f]  # a category that training did not see


def sparse_histogram(
    binned: SparseRows,
    slots: np.ndarray,
    rows: np.ndarray,
    packed: np.ndarray,
    small: bool,
    words: int,
) -> np.ndarray:
    """Return the sums of rows by slot; see `histogram`.

    Args:
      binned: Rows.
      slots: First slot of each column, and the number of slots.
      rows: Row numbers.
      packed: Packed numbers of all rows.
      small: Whether g and h are one word.
      words: Words of a slot.
    """
    sums_CxW = np.zeros((int(binned.firsts[-1]), words), np.int64)
    node_W = np.zeros(words, np.int64)
    add_nonzeros(binned, rows, packed, small, sums_CxW, node_W)
    made_SxW = np.empty((int(slots[-1]), words), np.int64)
    fill(binned, slots, sums_CxW, node_W, made_SxW)
    return made_SxW


@njit(cache=True, nogil=True)
def add_nonzeros(binned, rows, packed, small, sums_CxW, node_W):
    """Add the numbers of each row to its codes, and to the sums of the node."""
    starts, codes, words = binned.starts, binned.codes, len(node_W)
    once = 1 if small else 2
    for i in range(len(rows)):
        if i + AHEAD < len(rows):
            ahead = np.int64(rows[i + AHEAD])
            prefetch(packed, ahead)
            prefetch(codes, starts[ahead])
        row = rows[i]
        value = packed[row]
        g = value if small else value >> 32
        h = value & MASK
        for k in range(starts[row], starts[row + 1]):
            code = codes[k]
            sums_CxW[code, 0] += g
            if not small:
                sums_CxW[code, 1] += h
            if words > once:
                sums_CxW[code, once] += 1
        node_W[0] += g
        if not small:
            node_W[1] += h
        if words > once:
            node_W[once] += 1


@njit(cache=True, nogil=True)
def fill(binned, slots, sums_CxW, node_W, made_SxW):
    """Write the sums of slots from those of codes, and those of the bins of zero."""
    for f in range(len(binned.zeros)):
        begin, end, first = slots[f], slots[f + 1], binned.firsts[f]
        for w in range(len(node_W)):
            rest = node_W[w]
            for s in range(begin, end):
                value = sums_CxW[first + s - begin, w]
                made_SxW[s, w] = value
                rest -= value
            if binned.zeros[f] < end - begin:  # else no row is zero
                made_SxW[begin + binned.zeros[f], w] = rest


@njit(cache=True, nogil=True)
def sparse_flags(binned, column, table, rows, out):
    """Write whether each row goes left, by the table of its bin."""
    first, end = binned.firsts[column], binned.firsts[column + 1]
    zero = table[binned.zeros[column]]
    for i in range(len(rows)):
        low, stop = binned.starts[rows[i]], binned.starts[rows[i] + 1]
        low = first_not_below(binned.codes, low, stop, first)
        out[i] = zero
        if low < stop and binned.codes[low] < end:
            out[i] = table[binned.codes[low] - first]
