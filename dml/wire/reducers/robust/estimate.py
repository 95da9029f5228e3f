"""Robust estimates of vectors: mixing, then a rule."""

from typing import NamedTuple

import numpy as np

from dml.types import BadInput, identity
from dml.wire.reducers.robust.points import Points, Total, finite
from dml.wire.reducers.robust.rule import Mixing, Rule
from dml.wire.reducers.robust.threads import Run, on_threads, serially


class Estimator(NamedTuple):
    """A rule and the mixing before it.

    Attributes:
      rule: The rule.
      before: Mixing, in the order of its application.
    """

    rule: Rule
    before: tuple[Mixing, ...] = ()

    @property
    def name(self) -> str:
        """Name in messages, such as krum:2+nnm."""
        rule = self.rule
        return "+".join(
            [f"{rule.name}:{rule.faulty}", *(mixing.name for mixing in self.before)]
        )

    @property
    def centred(self) -> bool:
        """True if the last estimate is used."""
        return self.rule.centred

    @property
    def stateless(self) -> bool:
        """True if neither earlier estimates nor their number are used."""
        return not self.centred and all(mixing.stateless for mixing in self.before)

    def points(self, count: int) -> int:
        """Return the number of points that the rule gets from `count` vectors."""
        for mixing in self.before:
            count = mixing.points(count)
        return count

    def least(self) -> int:
        """Return the smallest number of vectors with an estimate."""
        count = needed = self.rule.least(self.rule.faulty)
        while self.points(count) < needed:
            count += 1
        return count

    def check(self, count: int) -> None:
        """Raise BadInput if there are too few vectors for f."""
        least, rule = self.least(), self.rule
        if count >= least:
            return
        needed = f"n >= {rule.least} = {rule.least(rule.faulty)}"
        if least > rule.least(rule.faulty):
            needed += f" points, of {least}"
        elif rule.faulty == 0:
            needed = f"n >= {least}"
        raise BadInput(
            f"expected {needed} workers with {self.name}, got {count}; pass more "
            "workers or a smaller f"
        )


def estimate(
    rule: Rule, rows: np.ndarray, *before: Mixing, run: Run = on_threads
) -> np.ndarray:
    """Return the robust estimate of the mean of n vectors.

    Args:
      rule: The rule.
      rows: n x d float32.
      *before: Mixing before the rule.
      run: Calls functions of parts of the columns.
    """
    estimator = Estimator(rule, before)
    estimator.check(len(rows))
    return estimate_slice(estimator, rows, None, 0, identity, run=run)


def estimate_slice(
    estimator: Estimator,
    rows: np.ndarray,
    centre: np.ndarray | None,
    step: int,
    total: Total,
    *,
    scale: float = 1.0,
    run: Run = serially,
) -> np.ndarray:
    """Return a slice of the estimate, on the owner of the slice; collective.

    It is NaN if too few vectors are finite.

    Args:
      estimator: Rule and mixing.
      rows: n x d values of the slice; float32.
      centre: Slice of the last estimate; None: the origin.
      step: Number of earlier estimates.
      total: Returns the sum of a small float64 array over all slices.
      scale: Factor of the rows; n: rows are terms of a sum, which is estimated.
      run: Calls functions of parts of the columns.
    """
    rule, before = estimator
    every = Points(rows, rule.faulty, scale, step, centre, total, run)
    estimated, checked = None, False
    if rule.optimistic and rule.faulty and not before:
        estimated, checked = rule.optimistic(every) or (None, False)
    points = finite(every, checked)
    if estimated is not None and points is every:
        return estimated
    least = Estimator(rule._replace(faulty=points.faulty), before).least()
    if points.vectors < least:
        return np.full(points.rows_NxD.shape[1], np.nan, np.float32)
    for mixing in before:
        points = mixing.mix(points)
    return rule.estimate(points)
