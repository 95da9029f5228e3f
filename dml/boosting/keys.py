"""Keys of the values of columns, in ascending order; dense and sparse tables.

    row 0 │ 3 0 0      a key has the bits of its number, so that keys and numbers have
    row 1 │ 0 0 5      one order
    row 2 │ 3 0 0
            column 0   keys of 0 3 3, no further zeros
            column 1   key of 0, two further zeros
            column 2   keys of 0 5, one further zero

The zeros of a sparse table are implicit: a column has one key of them, and the number
of the others. So memory and time follow the nonzeros.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit

BLOCK = 4096  # rows


class Column(NamedTuple):
    """Keys of a column of a rank.

    Attributes:
      keys: Keys of the values that are not missing, ascending; one of all implicit
        zeros.
      zeros: Number of implicit zeros without a key.
    """

    keys: np.ndarray
    zeros: int = 0


class Columns(NamedTuple):
    """Keys of all columns of a rank.

    Attributes:
      present: Number of values of each column that are not missing.
      distinct: Distinct keys, column by column; some of a column with many.
      counts: Number of them by column.
      column: Keys of a column by its number.
    """

    present: np.ndarray
    distinct: np.ndarray
    counts: np.ndarray
    column: Callable[[int], Column]


def keys_of(values: np.ndarray) -> np.ndarray:
    """Return unsigned integers in the order of the numbers; -0 and 0 are equal."""
    word = np.uint32 if values.dtype == np.float32 else np.uint64
    bits = (values + values.dtype.type(0)).view(word)
    last = word(8 * bits.itemsize - 1)
    bits ^= -(bits >> last) | (word(1) << last)  # all bits of negative numbers
    return bits


def values_of(keys: np.ndarray) -> np.ndarray:
    """Return the numbers of keys, as float64."""
    top = keys.dtype.type(1 << (8 * keys.itemsize - 1))
    bits = np.where(keys & top, keys ^ top, ~keys)
    return bits.view(np.dtype(f"f{keys.itemsize}")).astype(np.float64)


def below(column: Column, probes: np.ndarray, side: Any = "left") -> np.ndarray:
    """Return the number of values below each probe; with side="right", not above it."""
    found = np.searchsorted(column.keys, probes, side)
    if column.zeros:
        zero = zero_key(probes.dtype)
        found += column.zeros * (probes >= zero if side == "right" else probes > zero)
    return found


def zero_key(dtype: np.dtype) -> Any:
    """Return the key of 0."""
    return dtype.type(1 << (8 * dtype.itemsize - 1))


def dense_columns(x: np.ndarray, most: int) -> Columns:
    """Return the keys of a dense block, with at most `most` distinct ones a column."""
    ordered = [Column(sorted_keys(column)) for column in by_column(x)]
    distinct = [distinct_keys(keys, most) for keys, _ in ordered]
    present = np.array([len(keys) for keys, _ in ordered], np.int64)
    counts = np.array([len(keys) for keys in distinct], np.int64)
    none = keys_of(np.zeros(0, x.dtype))
    return Columns(
        present, np.concatenate([none, *distinct]), counts, ordered.__getitem__
    )


def sparse_columns(x: Any) -> Columns:
    """Return the keys of a CSR matrix with distinct columns in a row."""
    rows, columns = x.shape
    known = ~np.isnan(x.data)
    absent = np.bincount(x.indices[~known], minlength=columns)
    zeros = rows - np.bincount(x.indices, minlength=columns)
    some = np.flatnonzero(zeros)
    keys = keys_of(x.data[known])
    owners = np.concatenate([x.indices[known], some])
    keys = np.concatenate([keys, np.full(len(some), zero_key(keys.dtype))])
    owners, keys = by_owner(owners, keys)
    starts = starts_of(np.bincount(owners, minlength=columns))
    first = firsts(owners, keys)

    def column(f: int) -> Column:
        return Column(keys[starts[f] : starts[f + 1]], max(int(zeros[f]) - 1, 0))

    counts = np.bincount(owners[first], minlength=columns)
    return Columns(rows - absent, keys[first], counts, column)


def by_owner(owners: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return columns and keys, ordered by column, then by key."""
    order = np.lexsort((keys, owners))
    return owners[order], keys[order]


def firsts(owners: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return whether each of some ordered pairs differs from the one before."""
    first = np.ones(len(keys), bool)
    first[1:] = (owners[1:] != owners[:-1]) | (keys[1:] != keys[:-1])
    return first


def starts_of(lengths: np.ndarray) -> np.ndarray:
    """Return the first place of each part, and the end."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def by_column(x: np.ndarray) -> np.ndarray:
    """Return a transposed copy, by blocks that fit in the cache."""
    made = np.empty(x.shape[::-1], x.dtype)
    for first in range(0, len(x), BLOCK):
        made[:, first : first + BLOCK] = x[first : first + BLOCK].T
    return made


def sorted_keys(column: np.ndarray) -> np.ndarray:
    """Sort a column; return the keys of the values that are not missing, ascending."""
    column.sort()  # NaN at the end
    return keys_of(column[: np.searchsorted(column, np.nan)])


@njit(cache=True, nogil=True)
def distinct_keys(keys, most):
    """Return the distinct keys of a sorted column, at most `most` of them."""
    found, count = np.empty(most, keys.dtype), 0
    for key in keys:
        if count == 0 or key != found[count - 1]:
            if count == most:
                break
            found[count] = key
            count += 1
    return found[:count]
