"""Rules that estimate each coordinate by itself: mean, median, trimmed mean, signs.

    values of a coordinate     -9   1   2   3   4   80       f = 1
    median                              2.5
    trimmed mean                    1 + 2 + 3 + 4  / 4

The estimates lie between the least and the greatest honest value of each coordinate,
except those of `mean`.
"""

import numpy as np

from dml.wire.reducers.robust.rule import Rule
from dml.wire.reducers.robust.sorting import mean_of_ranks, sorted_rows


def mean(faulty: int = 0) -> Rule:
    """Return the mean of all vectors, which one attacker moves anywhere."""
    return Rule("mean", faulty, lambda f: f + 1, columns=mean_columns)


def mean_columns(rows: np.ndarray, faulty: int) -> np.ndarray:
    return mean_of_ranks(rows, 0, len(rows))


def median(faulty: int) -> Rule:
    """Return the median of each coordinate (Yin 2018); n > 2f."""
    return Rule("median", faulty, lambda f: 2 * f + 1, columns=median_columns)


def median_columns(rows: np.ndarray, faulty: int) -> np.ndarray:
    half = len(rows) // 2
    return mean_of_ranks(rows, half - 1 + len(rows) % 2, half + 1)


def trimmed_mean(faulty: int) -> Rule:
    """Return the mean without the f least and f greatest values (Yin 2018); n > 2f."""
    return Rule("trimmed_mean", faulty, lambda f: 2 * f + 1, columns=trimmed_columns)


def trimmed_columns(rows: np.ndarray, faulty: int) -> np.ndarray:
    return mean_of_ranks(rows, faulty, len(rows) - faulty)


def sign_majority(faulty: int) -> Rule:
    """Return the sign of most values times the median of |values|; n > 2f.

    A tie is positive, and zero counts as positive, as with the reducer `vote`.
    """
    return Rule("sign_majority", faulty, lambda f: 2 * f + 1, columns=sign_columns)


def sign_columns(rows: np.ndarray, faulty: int) -> np.ndarray:
    sizes = median_columns(np.abs(rows), faulty)
    negative = 2 * np.count_nonzero(rows < 0, axis=0) > len(rows)
    return np.where(negative, -sizes, sizes)


def columns_near_median(rows: np.ndarray, count: int) -> np.ndarray:
    """Return, per column, the mean of the `count` values nearest to the median.

    They are neighbours in the sorted column. Of two equally near values the greater one
    is left out.
    """
    ordered = sorted_rows(rows)
    middle = median_columns(rows, 0)
    low = np.zeros(rows.shape[1], np.int64)
    high = np.full(rows.shape[1], len(rows) - 1)
    every = np.arange(rows.shape[1])
    for _ in range(len(rows) - count):
        below = middle - ordered[low, every]
        above = ordered[high, every] - middle
        low += below > above
        high -= below <= above
    total = np.zeros(rows.shape[1])
    for k in range(count):
        total += ordered[low + k, every]
    return (total / count).astype(np.float32)
