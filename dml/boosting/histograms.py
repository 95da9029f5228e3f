"""Histograms of nodes: sums of g, h and rows by column and bin, as 64-bit integers.

    row 7 │ bins 3 0 9 … │  g,h packed ──►  sums[0 · PLACES + 3] += packed
                                            sums[1 · PLACES + 0] += packed
                                            sums[2 · PLACES + 9] += packed

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
from dml.boosting.keys import starts_of
from dml.boosting.messages import part
from dml.boosting.rows import AHEAD, Binned, prefetch
from dml.boosting.sparse import SparseRows, sparse_histogram

# Places of a column, 256 of which are used. With 256, equal bins of all columns would
# share two sets of the first cache: 200 columns of two bins took 26 times as long.
PLACES = 264


class Slots(NamedTuple):
    """Slots of the histograms of a rank.

    Attributes:
      places: Place column · PLACES + bin of each slot.
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
    columns = len(bins.counts)
    sizes = bins.counts + bins.missing
    starts = starts_of(sizes)
    places = np.arange(starts[-1]) + np.repeat(
        np.arange(columns) * PLACES - starts[:-1], sizes
    )
    parts = [part(columns, ranks, r) for r in range(ranks)]
    edges = [int(starts[each.start]) for each in parts] + [int(starts[-1])]
    return Slots(places, starts, edges, parts[rank].start, parts[rank].stop)


def width(small: bool, counted: bool) -> int:
    """Return the words of a slot of a message."""
    return (1 if small else 2) + counted


def histogram(
    binned: Binned | SparseRows,
    slots: Slots,
    rows: np.ndarray,
    packed: np.ndarray,
    small: bool,
    counted: bool,
) -> np.ndarray:
    """Return the sums of rows by slot, shape SxW, to be added over ranks."""
    if isinstance(binned, SparseRows):
        words = width(small, counted)
        return sparse_histogram(binned, slots.starts, rows, packed, small, words)
    size = len(binned.columns_FxN) * PLACES
    once = np.zeros((size, 1 + counted), np.int64)
    if small:
        add_packed(binned, rows, packed, once)
        return once.take(slots.places, axis=0)
    sums = np.zeros((2 + counted, size), np.int64)
    for begin in range(0, len(rows), FLUSH):
        once[:] = 0
        add_packed(binned, rows[begin : begin + FLUSH], packed, once)
        flush(once, sums)
    made = np.empty((len(slots.places), width(small, counted)), np.int64)
    for k, each in enumerate(sums):
        made[:, k] = each.take(slots.places)
    return made


@njit(cache=True, nogil=True)
def unpacked(packed_SxW):
    """Return the columns g, h and, if counted, rows, of packed sums of all ranks."""
    slots, width = packed_SxW.shape
    sums_SxV = np.empty((slots, width + 1), np.int64)
    for s in range(slots):
        sums_SxV[s, 0] = packed_SxW[s, 0] >> 32
        sums_SxV[s, 1] = packed_SxW[s, 0] & 0xFFFFFFFF
        if width > 1:
            sums_SxV[s, 2] = packed_SxW[s, 1]
    return sums_SxV


@njit(cache=True, nogil=True)
def flush(once_SxW, sums_3xS):
    """Add packed sums, and numbers of rows if W is 2, to sums of g, h and rows."""
    sign, half = np.uint64(1 << 63), np.int64(1 << 31)
    for s in range(once_SxW.shape[0]):
        value = once_SxW[s, 0]  # shifted without its sign, for which AVX2 has a shift
        sums_3xS[0, s] += np.int64((np.uint64(value) ^ sign) >> np.uint64(32)) - half
        sums_3xS[1, s] += value & 0xFFFFFFFF
    if once_SxW.shape[1] > 1:
        for s in range(once_SxW.shape[0]):
            sums_3xS[2, s] += once_SxW[s, 1]


@njit(cache=True, nogil=True)
def add_packed(binned, rows, packed, once_SxW):
    """Add the packed number of each row, and 1 if W is 2, to the slots of its bins."""
    flat, stride, wide = binned.flat, binned.stride, np.uint64(len(binned.columns_FxN))
    step, once, counted = np.uint64(stride), once_SxW.reshape(-1), once_SxW.shape[1] > 1
    for i in range(len(rows)):
        if i + AHEAD < len(rows):
            ahead = np.int64(rows[i + AHEAD])
            prefetch(packed, ahead)
            prefetch(flat, ahead * stride)
        base, value = np.uint64(rows[i]) * step, packed[rows[i]]
        if counted:
            for f in range(wide):  # unsigned: no test for a negative index
                place = np.uint64(f) * np.uint64(PLACES)
                place = (place + np.uint64(flat[base + np.uint64(f)])) << np.uint64(1)
                once[place] += value
                once[place + np.uint64(1)] += 1
        else:
            for f in range(wide):
                place = np.uint64(f) * np.uint64(PLACES)
                once[place + np.uint64(flat[base + np.uint64(f)])] += value
