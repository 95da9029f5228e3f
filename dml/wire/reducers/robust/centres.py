"""Rules that move a centre towards the vectors: geometric median, centred clipping.

    v ◄──── x        a vector that is far from the centre v moves it less:
                     by 1/distance (geometric median), or by at most τ (clipping)

The centre is an affine combination of the vectors, the origin and the last estimate, so
its distances follow from theirs.
"""

import numpy as np

from dml.wire.reducers.robust.distances import mixed
from dml.wire.reducers.robust.rule import EXTRA, Points, Rule, Weights

ROUNDS = 3  # of Weiszfeld's algorithm
SMOOTHING = 0.1  # least distance in its denominators


def geometric_median(faulty: int) -> Rule:
    """Return the geometric median (RFA, Pillutla 2022); n > 2f.

    Three rounds of the smoothed algorithm of Weiszfeld, which start at the origin.
    """

    def weights(points: Points, f: int) -> Weights:
        count, centre = points.vectors, np.zeros((1, points.vectors + EXTRA))
        centre[0, -2] = 1
        for _ in range(ROUNDS):
            near, _ = mixed(points, np.vstack([np.eye(count, count + EXTRA), centre]))
            distances = np.sqrt(near.squared[count, :count])
            pulls = 1 / np.maximum(SMOOTHING, distances)
            centre = np.zeros_like(centre)
            centre[0, :count] = pulls / pulls.sum()
        return centre

    return Rule("geometric_median", faulty, lambda f: 2 * f + 1, weights=weights)


def centred_clipping(faulty: int, radius: float | None = None) -> Rule:
    """Return v + mean of (x - v), each of norm at most τ (Karimireddy 2021); n > 2f.

    Args:
      faulty: f.
      radius: τ; None: the median distance of the vectors to v.
    """

    def weights(points: Points, f: int) -> Weights:
        distances = np.sqrt(points.from_centre)
        limit = np.median(distances) if radius is None else radius
        factors = np.ones(points.vectors)
        far = distances > limit
        factors[far] = limit / distances[far]
        combined = np.zeros((1, points.vectors + EXTRA))
        combined[0, : points.vectors] = factors / points.vectors
        combined[0, -1] = 1 - combined.sum()
        return combined

    return Rule(
        "centred_clipping",
        faulty,
        lambda f: 2 * f + 1,
        weights=weights,
        centred=True,
    )
