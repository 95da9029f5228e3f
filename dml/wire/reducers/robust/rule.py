"""Contracts of robust rules, of mixing before them, and of attacks.

A rule reads n vectors by the functions of `points`, and does not communicate otherwise.
So a rule on p ranks needs one exchange of slices and small sums of numbers; see
`slices`.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dml.types import BadInput, identity
from dml.types.ranges import Size
from dml.wire.reducers.robust.points import Points


class Bound(NamedTuple):
    """The least number of vectors of a rule, slope · f + offset."""

    slope: int
    offset: int

    def __call__(self, faulty: int) -> int:
        return self.slope * faulty + self.offset

    def __str__(self) -> str:
        return f"{self.slope if self.slope > 1 else ''}f+{self.offset}"


class Mixing(NamedTuple):
    """A replacement of the vectors by combinations of them, before a rule.

    Attributes:
      name: Name in texts such as krum:2+nnm.
      mix: points -> the points that replace them.
      points: n -> number of points that replace n vectors.
      stateless: Whether the number of earlier estimates is not used.
    """

    name: str
    mix: Callable[[Points], Points]
    points: Callable[[int], int] = identity
    stateless: bool = True


class Rule(NamedTuple):
    """A robust estimate of the mean of n vectors, at most f of which are arbitrary.

    Attributes:
      name: Name in texts such as krum:2.
      faulty: f.
      least: f -> the smallest n with an estimate.
      estimate: points -> this slice of the estimate.
      centred: Whether the last estimate is used.
      optimistic: Function of points that returns this slice of the estimate, assuming
        that all values are finite, and whether the values of this slice are; one pass,
        without communication. Its result is None if the points need two passes. None:
        all points need two passes.
    """

    name: str
    faulty: int
    least: Bound
    estimate: Callable[[Points], np.ndarray]
    centred: bool = False
    optimistic: Callable[[Points], tuple[np.ndarray, bool] | None] | None = None


class Slice(NamedTuple):
    """The values of some coordinates in all workers' terms, on the slice's owner.

    Attributes:
      rows: n x d values; `forge` replaces rows of attackers.
      attackers: Numbers of the Byzantine workers.
      step: Number of earlier estimates.
      total: Returns the sum of a float64 array over all slices; collective.
      estimate: rows -> the values of the rule's estimate in this slice; collective.
    """

    rows: np.ndarray
    attackers: np.ndarray
    step: int
    total: Callable[[np.ndarray], np.ndarray]
    estimate: Callable[[np.ndarray], np.ndarray]

    @property
    def honest(self) -> np.ndarray:
        """Numbers of the other workers."""
        return np.setdiff1d(np.arange(len(self.rows)), self.attackers)


class Attack(NamedTuple):
    """The terms that Byzantine workers send instead of their own.

    Attributes:
      own: (term, step, worker) -> None; replaces a worker's term without knowledge of
        other terms.
      forge: Writes to the rows of the attackers, which know all terms and the rule.
      lag: Number of updates by which the terms of attackers are late.
    """

    own: Callable[[np.ndarray, int, int], None] | None = None
    forge: Callable[[Slice], None] | None = None
    lag: int = 0


class Byzantine(NamedTuple):
    """An attack, and how many workers make it; they are the last ones."""

    attack: Attack
    attackers: Size

    def workers(self, count: int) -> np.ndarray:
        """Return the numbers of the attackers among `count` workers."""
        if not 0 <= self.attackers < count:
            raise BadInput(
                f"expected 0 attackers or more and fewer than {count} workers, got "
                f"{self.attackers}; pass at most {count - 1}"
            )
        return np.arange(count - self.attackers, count)
