"""Rules that select vectors by their distances: Krum, multi-Krum, Bulyan, MDA.

        · ·                  Krum's score of a vector: the sum of the squared
       · ○ ·      ×          distances to its n-f-2 nearest others, itself left out
        · ·                  by its number; the vector with the least score is selected

Every distance is a number of the exchange; no vector is read.
"""

import numpy as np

from dml.wire.reducers.robust.columns import columns_near_median
from dml.wire.reducers.robust.rule import EXTRA, Points, Rule, Weights


def scores(squared: np.ndarray, faulty: int) -> np.ndarray:
    """Return Krum's scores of n vectors with these squared distances."""
    count = len(squared)
    others = squared[~np.eye(count, dtype=bool)].reshape(count, count - 1)
    nearest = max(1, count - faulty - 2)
    return np.sort(others, axis=1)[:, :nearest].sum(axis=1) if count > 1 else squared[0]


def averages(selected: np.ndarray, count: int) -> Weights:
    """Return the weights of the mean of selected vectors among `count`."""
    weights = np.zeros((1, count + EXTRA))
    weights[0, selected] = 1 / len(selected)
    return weights


def krum(faulty: int) -> Rule:
    """Return the vector with the least score (Blanchard 2017); n >= 2f+3."""

    def select(points: Points, f: int) -> Weights:
        return averages(
            np.argsort(scores(points.between, f), kind="stable")[:1], points.vectors
        )

    return Rule("krum", faulty, lambda f: 2 * f + 3, weights=select)


def multi_krum(faulty: int) -> Rule:
    """Return the mean of the n-f vectors with the least scores; n >= 2f+3."""

    def select(points: Points, f: int) -> Weights:
        order = np.argsort(scores(points.between, f), kind="stable")
        return averages(order[: points.vectors - f], points.vectors)

    return Rule("multi_krum", faulty, lambda f: 2 * f + 3, weights=select)


def bulyan(faulty: int) -> Rule:
    """Return Bulyan (El Mhamdi 2018); n >= 4f+3.

    Krum selects n-2f vectors, one after another; scores are computed anew without the
    selected ones. Then each coordinate is the mean of the n-4f values nearest to the
    median of the selected vectors.
    """

    def select(points: Points, f: int) -> Weights:
        left = np.arange(points.vectors)
        selected: list[int] = []
        while len(selected) < points.vectors - 2 * f:
            best = int(np.argmin(scores(points.between[np.ix_(left, left)], f)))
            selected.append(int(left[best]))
            left = np.delete(left, best)
        return np.eye(points.vectors + EXTRA)[selected]

    def columns(rows: np.ndarray, f: int) -> np.ndarray:
        return columns_near_median(rows, len(rows) - 2 * f)

    return Rule("bulyan", faulty, lambda f: 4 * f + 3, weights=select, columns=columns)


def mda(faulty: int) -> Rule:
    """Return the mean of the n-f vectors of least diameter (Rousseeuw 1985); n > 2f.

    Of several sets with the least diameter the one that leaves out the first vectors in
    the search is used. The search is exponential in f.
    """

    def select(points: Points, f: int) -> Weights:
        return averages(narrowest(points.between, f), points.vectors)

    return Rule("mda", faulty, lambda f: 2 * f + 1, weights=select)


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
