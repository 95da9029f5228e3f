"""Rules that select vectors by their distances: Krum, multi-Krum, Bulyan, MDA.

        · ·                  Krum's score of a vector: the sum of the squared
       · ○ ·      ×          distances to its n-f-2 nearest others, itself left out
        · ·                  by its number; the vector with the least score is selected

Every distance is a number of the exchange; no vector is read.
"""

import numpy as np

from dml.wire.reducers.robust.columns import mean_near_median
from dml.wire.reducers.robust.points import Points, mean_of, squared_distances
from dml.wire.reducers.robust.rule import Bound, Rule


def scores(squared: np.ndarray, faulty: int) -> np.ndarray:
    """Return Krum's scores of n vectors with these squared distances."""
    count = len(squared)
    others = squared[~np.eye(count, dtype=bool)].reshape(count, count - 1)
    nearest = max(1, count - faulty - 2)
    return np.sort(others, axis=1)[:, :nearest].sum(axis=1) if count > 1 else squared[0]


def krum(faulty: int) -> Rule:
    """Return the vector with the least score (Blanchard 2017); n >= 2f+3."""
    return Rule("krum", faulty, Bound(2, 3), lambda points: mean_of_best(points, 1))


def multi_krum(faulty: int) -> Rule:
    """Return the mean of the n-f vectors with the least scores; n >= 2f+3."""

    def estimate(points: Points) -> np.ndarray:
        return mean_of_best(points, points.vectors - points.faulty)

    return Rule("multi_krum", faulty, Bound(2, 3), estimate)


def mean_of_best(points: Points, count: int) -> np.ndarray:
    """Return the mean of vectors with the least scores; of equal scores the first."""
    order = np.argsort(scores(squared_distances(points), points.faulty), kind="stable")
    return mean_of(points, order[:count])


def bulyan(faulty: int) -> Rule:
    """Return Bulyan (El Mhamdi 2018); n >= 4f+3.

    Krum selects n-2f vectors, one after another; scores are computed anew without the
    selected ones. Then each coordinate is the mean of the n-4f values nearest to the
    median of the selected vectors.
    """

    def estimate(points: Points) -> np.ndarray:
        selected = one_after_another(squared_distances(points), points.faulty)
        kept = points._replace(rows_NxD=points.rows_NxD[selected])
        return mean_near_median(kept, len(selected) - 2 * points.faulty)

    return Rule("bulyan", faulty, Bound(4, 3), estimate)


def one_after_another(squared: np.ndarray, faulty: int) -> np.ndarray:
    """Return n-2f vectors that Krum selects, each without those selected before."""
    left = np.arange(len(squared))
    selected: list[int] = []
    while len(selected) < len(squared) - 2 * faulty:
        best = int(np.argmin(scores(squared[np.ix_(left, left)], faulty)))
        selected.append(int(left[best]))
        left = np.delete(left, best)
    return np.array(selected)


def mda(faulty: int) -> Rule:
    """Return the mean of the n-f vectors of least diameter (Rousseeuw 1985); n > 2f.

    Of several sets with the least diameter the first in the search is used. The search
    is exponential in f.
    """

    def estimate(points: Points) -> np.ndarray:
        return mean_of(points, narrowest(squared_distances(points), points.faulty))

    return Rule("mda", faulty, Bound(2, 1), estimate)


def narrowest(squared: np.ndarray, faulty: int) -> np.ndarray:
    """Return the n-f vectors whose greatest distance is least.

    A set of n-f vectors has a diameter of at most D if f vectors cover all pairs that
    are farther apart than D. The least such D is found by bisection, and a cover by a
    search of depth f: of a pair, one vector must be left out.
    """
    pairs = np.unique(squared)
    low, high = 0, len(pairs) - 1
    while low < high:
        middle = (low + high) // 2
        if cover(squared > pairs[middle], faulty) is None:
            low = middle + 1
        else:
            high = middle
    left_out = cover(squared > pairs[low], faulty) or frozenset()
    kept = [n for n in range(len(squared)) if n not in left_out]
    # a cover of fewer than f vectors: the farthest from the others follow
    while len(kept) > len(squared) - faulty:
        kept.pop(int(np.argmax(squared[np.ix_(kept, kept)].sum(axis=1))))
    return np.array(kept)


def cover(far: np.ndarray, most: int) -> frozenset[int] | None:
    """Return at most `most` vertices that cover all edges; None if there are none."""
    degrees = far.sum(axis=1)
    vertex = int(np.argmax(degrees))
    if not degrees[vertex]:
        return frozenset()
    if degrees.sum() > 2 * most * degrees[vertex]:
        return None
    without = far.copy()
    without[vertex] = without[:, vertex] = False
    found = cover(without, most - 1)
    if found is not None:
        return found | {vertex}
    neighbours = np.flatnonzero(far[vertex])
    if len(neighbours) > most:
        return None
    without = far.copy()
    without[neighbours] = without[:, neighbours] = False
    found = cover(without, most - len(neighbours))
    return None if found is None else found | set(neighbours.tolist())
