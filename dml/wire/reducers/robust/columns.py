"""Rules that estimate each coordinate by itself: mean, median, trimmed mean, signs.

    values of a coordinate     -9   1   2   3   4   80       f = 1
    median                              2.5
    trimmed mean                  ( 1 + 2 + 3 + 4 ) / 4

The median and the trimmed mean are in the range of the honest values of each
coordinate. Their values are added in float64 in the order of their size, so they do not
depend on the order of the workers.
"""

import numpy as np

from dml.wire.reducers.robust import registers, sorting
from dml.wire.reducers.robust.combinations import scaled_sum
from dml.wire.reducers.robust.points import Points
from dml.wire.reducers.robust.rule import Bound, Rule

HALF = Bound(2, 1)  # n > 2f


def mean(faulty: int = 0) -> Rule:
    """Return the mean of all finite vectors, which one attacker moves anywhere."""
    return Rule("mean", faulty, Bound(1, 1), mean_of_all)


def mean_of_all(points: Points) -> np.ndarray:
    return scaled_sum(points.rows_NxD, points.scale / points.vectors, points.run)


def median(faulty: int) -> Rule:
    """Return the median of each coordinate (Yin 2018); n > 2f."""
    return Rule(
        "median",
        faulty,
        HALF,
        lambda points: middle_mean(points, 1),
        optimistic=lambda points: checked_middle_mean(points, 1),
    )


def trimmed_mean(faulty: int) -> Rule:
    """Return the mean without the f least and f greatest values (Yin 2018); n > 2f.

    With f = 0 it is the mean.
    """

    def count(points: Points) -> int:
        return points.vectors - 2 * points.faulty

    def estimate(points: Points) -> np.ndarray:
        if not points.faulty:
            return mean_of_all(points)
        return middle_mean(points, count(points))

    return Rule(
        "trimmed_mean",
        faulty,
        HALF,
        estimate,
        optimistic=lambda points: checked_middle_mean(points, count(points)),
    )


def middle_mean(points: Points, count: int) -> np.ndarray:
    """Return the mean of at least `count` values in the middle of sorted columns.

    It is that of an odd number of values if n is odd, else of an even number.
    """
    checked = checked_middle_mean(points, count)
    if checked:
        return checked[0]
    return sorting.sum_of_ranks(points.rows_NxD, *middle(points, count), points.run)


def checked_middle_mean(points: Points, count: int) -> tuple[np.ndarray, bool] | None:
    """Return `middle_mean`, and whether all values are finite; None for short rows."""
    if not registers.fits(points.rows_NxD):
        return None
    return registers.sum_of_ranks(points.rows_NxD, *middle(points, count), points.run)


def middle(points: Points, count: int) -> tuple[int, int, float]:
    """Return the first and the end of the middle ranks, and the factor of their sum."""
    first = (points.vectors - count) // 2
    last = points.vectors - first
    return first, last, points.scale / (last - first)


def sign_majority(faulty: int) -> Rule:
    """Return the sign of most values times the median of |values|; n > 2f.

    A tie is positive, and zero counts as positive, as with the reducer `vote`.
    """

    def estimate(points: Points) -> np.ndarray:
        return sorting.majority_signs(points.rows_NxD, points.scale, points.run)

    return Rule("sign_majority", faulty, HALF, estimate)


def mean_near_median(points: Points, count: int) -> np.ndarray:
    """Return, per column, the mean of the `count` values nearest to the median."""
    return sorting.near_median(points.rows_NxD, count, points.scale / count, points.run)
