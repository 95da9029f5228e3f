"""Histograms of nodes: sums of g, h and rows by column and bin, as 64-bit integers.

    row 7 │ bins 3 0 9 … │  g,h packed ──►  sums[(0 << 8) + 3] += packed
                                            sums[(1 << 8) + 0] += packed
                                            sums[(2 << 8) + 9] += packed

One addition of a packed number per row and column. After FLUSH rows, the packed sums
are added to two arrays. Of two children, the histogram of the one with fewer rows is
computed and sent; that of its sibling is the difference to the parent's, exactly.

Only slots that exist are kept and sent: bins of the column, and one of missing values.
A node of at most FLUSH rows, over all ranks, sends packed sums: one word a slot instead
of two. Exact numbers of rows are one word more, unless h is constant.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from dml.boosting.bins import Bins
from dml.boosting.fixed import FLUSH
from dml.boosting.messages import part
from dml.boosting.rows import AHEAD, Binned, prefetch


class Slots(NamedTuple):
    """Slots of the histograms of a rank.

    Attributes:
      places: Place (column << 8) + bin of each slot.
      starts: First slot of each column, and the number of slots.
      edges: First slot of each rank's part of the columns, and the number of slots.
      first: First column of this rank's part.
      last: Column after this rank's part.
    """

    places: np.ndarray
    starts: np.ndarray
    edges: list[int]
    first: int
    last: int


def slots_of(bins: Bins, ranks: int, rank: int) -> Slots:
    """Return the slots of columns, and their parts by rank of equal columns."""
    columns = len(bins.edges)
    sizes = bins.counts + bins.missing
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    places = np.concatenate(
        [np.arange(size) + (f << 8) for f, size in enumerate(sizes)]
        or [np.zeros(0, np.int64)]
    )
    parts = [part(columns, ranks, r) for r in range(ranks)]
    edges = [int(starts[each.start]) for each in parts] + [int(starts[-1])]
    return Slots(places, starts, edges, parts[rank].start, parts[rank].stop)


def width(small: bool, counted: bool) -> int:
    """Return the words of a slot of a message."""
    return (1 if small else 2) + counted


def histogram(
    binned: Binned,
    slots: Slots,
    rows: np.ndarray,
    packed: np.ndarray,
    small: bool,
    counted: bool,
) -> np.ndarray:
    """Return the sums of rows by slot, shape SxW, to be added over ranks."""
    size = len(binned.columns_FxN) << 8
    sums, rows_of = np.zeros((2, size), np.int64), np.zeros(size * counted, np.int64)
    made = np.empty((len(slots.places), width(small, counted)), np.int64)
    once = add_rows(binned, rows, packed, sums, rows_of)
    if small:
        made[:, 0] = once[slots.places]
    else:
        made[:, 0], made[:, 1] = sums[0, slots.places], sums[1, slots.places]
    if counted:
        made[:, -1] = rows_of[slots.places]
    return made


def unpacked(sums_SxW: np.ndarray, small: bool) -> np.ndarray:
    """Return the columns g, h and, if counted, rows, of the sums over all ranks."""
    if not small:
        return sums_SxW
    g, h = sums_SxW[:, 0] >> 32, sums_SxW[:, 0] & 0xFFFFFFFF
    return np.column_stack([g, h, sums_SxW[:, 1:]])


@njit(cache=True, nogil=True)
def add_rows(binned, rows, packed, sums_2xS, rows_of):
    """Add rows to sums_2xS, and to rows_of unless it is empty.

    Return the packed sums of the last FLUSH rows or fewer.
    """
    size = sums_2xS.shape[1]
    once, ones = np.zeros(size, np.int64), np.ones(0, np.int64)
    flat, stride, columns = binned.flat, binned.stride, len(binned.columns_FxN)
    if len(rows_of):
        ones = np.ones(len(packed), np.int64)
    for begin in range(0, len(rows), FLUSH):
        some = rows[begin : begin + FLUSH]
        once[:] = 0
        add_packed(flat, stride, columns, some, packed, once)
        if len(rows_of):
            add_packed(flat, stride, columns, some, ones, rows_of)
        for s in range(size):
            sums_2xS[0, s] += once[s] >> 32
            sums_2xS[1, s] += once[s] & 0xFFFFFFFF
    return once


@njit(cache=True, nogil=True)
def add_packed(flat, stride, columns, rows, packed, once):
    """Add the packed number of each row to the slots of its bins."""
    step, wide = np.uint64(stride), np.uint64(columns)
    for i in range(len(rows)):
        if i + AHEAD < len(rows):
            ahead = np.int64(rows[i + AHEAD])
            prefetch(packed, ahead)
            prefetch(flat, ahead * stride)
        base, value = np.uint64(rows[i]) * step, packed[rows[i]]
        for f in range(wide):  # unsigned: no test for a negative index
            place = np.uint64(f) << np.uint64(8)
            once[place + np.uint64(flat[base + np.uint64(f)])] += value
