"""Sorting networks that order each column of a matrix, compiled.

    x0 ──┬────┬──── least        a comparator ┬ moves the lesser value up
         │    │                  and the greater one down
    x1 ──┴─┬──┴─┬──
           │    │                all columns of a tile pass a comparator at once,
    x2 ────┴────┴── greatest     by vector instructions and without branches

Batcher's merge exchange sorts n values by about n lg² n / 4 comparators. Comparators
that no wanted output depends on are left out.
"""

from functools import lru_cache

import numpy as np
from numba import njit

BOTH, LESSER, GREATER = 0, 1, 2  # values of a comparator that are used later


@lru_cache(maxsize=256)
def network(count: int, first: int, last: int) -> np.ndarray:
    """Return comparators (i, j, used) that move outputs first to last - 1 in place.

    Args:
      count: Number of values.
      first: First wanted output of the sorted values.
      last: Output after the last wanted one.
    """
    needed = np.zeros(count, bool)
    needed[first:last] = True
    pruned = []
    for i, j in reversed(merge_exchange(count)):
        if needed[i] or needed[j]:
            used = BOTH if needed[i] and needed[j] else GREATER if needed[j] else LESSER
            pruned.append((i, j, used))
            needed[i] = needed[j] = True
    return np.array(pruned[::-1], np.int64).reshape(-1, 3)


def merge_exchange(count: int) -> list[tuple[int, int]]:
    """Return the comparators of merge exchange (Batcher; Knuth 5.2.2, algorithm M)."""
    comparators = []
    power = 1 << max(0, (count - 1).bit_length() - 1)
    step = power
    while step > 0:
        block, offset, distance = power, 0, step
        while True:
            comparators += [
                (i, i + distance) for i in range(count - distance) if i & step == offset
            ]
            if block == step:
                break
            distance, block, offset = block - step, block // 2, step
        step //= 2
    return comparators


# Functions of one or two rows, so that their loops are vectorised.


@njit(nogil=True, cache=True)
def copy_row(row, copy):
    for k in range(len(row)):
        copy[k] = row[k]


@njit(nogil=True, cache=True)
def order_rows(upper, lower):
    """Move the lesser values to `upper` and the greater ones to `lower`."""
    for k in range(len(upper)):
        x, y = upper[k], lower[k]
        upper[k] = x if x < y else y
        lower[k] = y if x < y else x


@njit(nogil=True, cache=True)
def keep_lesser(upper, lower):
    for k in range(len(upper)):
        x, y = upper[k], lower[k]
        upper[k] = x if x < y else y


@njit(nogil=True, cache=True)
def keep_greater(upper, lower):
    for k in range(len(upper)):
        x, y = upper[k], lower[k]
        lower[k] = y if x < y else x


@njit(nogil=True, cache=True)
def compare_exchange(tile, comparators):
    """Apply all comparators to the rows of a tile."""
    for c in range(len(comparators)):
        upper, lower = tile[comparators[c, 0]], tile[comparators[c, 1]]
        if comparators[c, 2] == BOTH:
            order_rows(upper, lower)
        elif comparators[c, 2] == LESSER:
            keep_lesser(upper, lower)
        else:
            keep_greater(upper, lower)
