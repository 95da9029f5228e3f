"""Robust estimates of a slice of vectors: mixing, then a rule.

A vector with a value that is not finite is Byzantine: it is left out, and f decreases
by one for each, to no less than 0. This is the only place with a policy for NaN.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import njit

from dml.types import BadInput
from dml.wire.reducers.robust.distances import mixed, squared_distances
from dml.wire.reducers.robust.rule import EXTRA, Mixing, Points, Rule, Weights

Total = Callable[[np.ndarray], np.ndarray]  # sums a small array over all slices


class Estimator(NamedTuple):
    """A rule and the mixing before it.

    Attributes:
      rule: The rule.
      before: Mixing, in the order of its application.
    """

    rule: Rule
    before: tuple[Mixing, ...] = ()

    @property
    def centred(self) -> bool:
        """Whether the last estimate is used."""
        return self.rule.centred

    @property
    def stateless(self) -> bool:
        """Whether neither earlier estimates nor their number are used."""
        return not self.centred and all(mixing.stateless for mixing in self.before)

    @property
    def measures(self) -> bool:
        """Whether distances are used."""
        return bool(self.before) or self.rule.weights is not None

    def check(self, count: int) -> None:
        """Raise BadInput if there are too few vectors for f."""
        rule, mixed_count = self.rule, count
        for mixing in self.before:
            mixed_count = mixing.points(mixed_count)
        least = rule.least(rule.faulty)
        if mixed_count < least:
            names = "+".join(
                [f"{rule.name}:{rule.faulty}", *(m.name for m in self.before)]
            )
            got = f"{count} gradients"
            if mixed_count != count:
                got += f", of which mixing makes {mixed_count}"
            raise BadInput(
                f"expected n >= {least} gradients of an update for {names}, got {got}; "
                "pass a smaller f, or add the gradients of more workers"
            )


def estimate(rule: Rule, rows: np.ndarray, *before: Mixing) -> np.ndarray:
    """Return the robust estimate of the mean of n vectors.

    Args:
      rule: The rule.
      rows: n x d float32.
      *before: Mixing before the rule.
    """
    estimator = Estimator(rule, before)
    estimator.check(len(rows))
    zeros = np.zeros(rows.shape[1], np.float32)
    return estimate_slice(estimator, rows, zeros, 0, lambda facts: facts)


def estimate_slice(
    estimator: Estimator, rows: np.ndarray, centre: np.ndarray, step: int, total: Total
) -> np.ndarray:
    """Return a slice of the estimate, on the owner of the slice; collective.

    Args:
      estimator: Rule and mixing.
      rows: n x d values of the slice.
      centre: Slice of the last estimate; zeros before the first.
      step: Number of earlier estimates.
      total: Sums the facts of all slices: n + (n+2)² numbers, or n without distances.
    """
    n = len(rows)
    own = [nonfinite_values(rows).astype(np.float64)]
    if estimator.measures:
        own.append(squared_distances(rows, centre).reshape(-1))
    facts = total(np.concatenate(own))
    kept = np.flatnonzero(facts[:n] == 0)
    rule, before = estimator
    faulty = max(0, rule.faulty - (n - len(kept)))
    if len(kept) < max(1, rule.least(faulty)):
        return np.full(rows.shape[1], np.nan, np.float32)
    weights = None
    if estimator.measures:
        places = np.append(kept, [n, n + 1])
        squared = facts[n:].reshape(n + EXTRA, -1)[np.ix_(places, places)]
        weights = combined_weights(estimator, Points(squared, step), faulty)
    if len(kept) < n:
        rows = rows[kept]
    if weights is not None:
        rows = combine(rows, centre, weights)
    return rows[0] if rule.columns is None else rule.columns(rows, faulty)


def combined_weights(estimator: Estimator, points: Points, faulty: int) -> Weights:
    """Return the weights of the vectors whose columns the rule reads."""
    rule, before = estimator
    weights = np.eye(points.vectors + EXTRA)
    for mixing in before:
        points, full = mixed(points, mixing.weights(points, faulty))
        weights = full @ weights
    if rule.weights:
        return rule.weights(points, faulty) @ weights
    return weights[: points.vectors]


def combine(rows: np.ndarray, centre: np.ndarray, weights: Weights) -> np.ndarray:
    """Return affine combinations of rows, the origin and the centre.

    A weight of 1 copies a row with its bits.
    """
    points, factors = rows, weights[:, : len(rows)]
    if weights[:, -1].any():
        points = np.vstack([rows, centre])
        factors = np.hstack([factors, weights[:, -1:]])
    used = np.flatnonzero(factors.any(axis=0))
    combined = np.zeros((len(weights), rows.shape[1]), np.float32)
    add_scaled(points, used, factors.astype(np.float32), combined)
    return combined


TILE = 4096  # columns that are combined at once, in the cache of a core


@njit(nogil=True, cache=True)
def add_scaled(points, used, factors, combined):
    """Add points times factors, in the order of the points."""
    length = points.shape[1]
    for start in range(0, length, TILE):
        stop = min(start + TILE, length)
        for k in range(len(factors)):
            total = combined[k, start:stop]
            for n in used:
                factor, row = factors[k, n], points[n, start:stop]
                if factor != 0:
                    for c in range(len(total)):
                        total[c] += factor * row[c]


@njit(nogil=True, cache=True)
def nonfinite_values(rows):
    """Return the number of values that are not finite in each row."""
    counts = np.zeros(len(rows), np.int64)
    for n in range(len(rows)):
        row, count = rows[n].view(np.uint32), 0
        for k in range(len(row)):
            count += (row[k] & np.uint32(0x7F800000)) == np.uint32(0x7F800000)
        counts[n] = count
    return counts
