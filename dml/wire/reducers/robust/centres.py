"""Rules that move a centre towards the vectors: geometric median, centred clipping.

    v ◄──── x        a vector that is far from the centre v moves it less:
                     by 1/distance (geometric median), or by at most τ (clipping)

Their lengths 0.1 and τ are those of gradients, not of terms of a sum.
"""

import numpy as np

from dml.wire.reducers.robust.columns import HALF
from dml.wire.reducers.robust.points import Points, combine, distances_to
from dml.wire.reducers.robust.rule import Rule

ROUNDS = 3  # of Weiszfeld's algorithm
SMOOTHING = 0.1  # least distance in its denominators


def geometric_median(
    faulty: int, rounds: int = ROUNDS, smoothing: float = SMOOTHING
) -> Rule:
    """Return the approximate geometric median (RFA, Pillutla 2022); n > 2f.

    The smoothed algorithm of Weiszfeld, which starts at the origin. A round adds n
    distances over all slices.

    Args:
      faulty: f.
      rounds: Number of rounds.
      smoothing: Least distance in the denominators of the weights.
    """

    def estimate(points: Points) -> np.ndarray:
        centre = np.zeros(points.rows_NxD.shape[1], np.float32)
        for _ in range(rounds):
            pulls = 1 / np.maximum(smoothing, distances_to(points, centre))
            centre = combine(points, pulls / pulls.sum())
        return centre

    return Rule("geometric_median", faulty, HALF, estimate)


def centred_clipping(faulty: int, radius: float | None = None) -> Rule:
    """Return v + mean of (x - v), each of norm at most τ (Karimireddy 2021); n > 2f.

    The centre v is the last estimate, and the origin before the first one.

    Args:
      faulty: f.
      radius: τ; None: the median distance of the vectors to v.
    """

    def estimate(points: Points) -> np.ndarray:
        centre = points.centre
        if centre is None:
            centre = np.zeros(points.rows_NxD.shape[1], np.float32)
        distances = distances_to(points, centre)
        limit = np.median(distances) if radius is None else radius
        shares = shrinking(distances, limit) / points.vectors
        moved = combine(points, shares)
        moved += np.float32(1 - shares.sum()) * centre
        return moved

    return Rule("centred_clipping", faulty, HALF, estimate, centred=True)


def shrinking(lengths: np.ndarray, limit: float) -> np.ndarray:
    """Return factors of at most 1 that shorten lengths to a limit."""
    return limit / np.maximum(lengths, limit) if limit > 0 else (lengths <= 0) * 1.0
