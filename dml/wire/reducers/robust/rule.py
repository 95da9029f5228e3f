"""Contracts of robust rules, of mixing before them, and of attacks.

A rule reads the n vectors in two ways only: their distances, which are numbers, and
their values coordinate by coordinate. So a rule on p ranks needs one exchange of slices
and one small sum of distances; see `slices`.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dml.types import identity

EXTRA = 2  # points after the vectors: the origin and the centre


class Points(NamedTuple):
    """The distances of n vectors, of the origin, and of a centre, in this order.

    Attributes:
      squared: (n+2)x(n+2) squared distances, float64. The centre is the last estimate,
        and the origin before the first one.
      step: Number of earlier estimates.
    """

    squared: np.ndarray
    step: int = 0

    @property
    def vectors(self) -> int:
        """Number of vectors."""
        return len(self.squared) - EXTRA

    @property
    def between(self) -> np.ndarray:
        """Squared distances of the vectors."""
        return self.squared[:-EXTRA, :-EXTRA]

    @property
    def norms(self) -> np.ndarray:
        """Squared norms of the vectors."""
        return self.squared[: self.vectors, -2]

    @property
    def from_centre(self) -> np.ndarray:
        """Squared distances of the vectors to the centre."""
        return self.squared[: self.vectors, -1]


# k x (n+2): each row has the sum 1, and is an affine combination of the n+2 points.
Weights = np.ndarray
# (points, f) -> the weights of the points that replace the vectors
Mix = Callable[[Points, int], Weights]


class Mixing(NamedTuple):
    """A replacement of the vectors by combinations of them, before a rule.

    Attributes:
      name: Name in texts such as krum:2+nnm.
      weights: See `Mix`.
      points: n -> number of points that replace the vectors.
      stateless: Whether the number of earlier estimates is not used.
    """

    name: str
    weights: Mix
    points: Callable[[int], int] = identity
    stateless: bool = True


class Rule(NamedTuple):
    """A robust estimate of the mean of n vectors, at most f of which are arbitrary.

    Attributes:
      name: Name in texts such as krum:2.
      faulty: f.
      least: f -> the smallest n with an estimate.
      weights: See `Mix`; None: the vectors as they are.
      columns: (rows, f) -> a value per column; None: `weights` returns one point.
      centred: Whether the last estimate is used.
    """

    name: str
    faulty: int
    least: Callable[[int], int]
    weights: Mix | None = None
    columns: Callable[[np.ndarray, int], np.ndarray] | None = None
    centred: bool = False


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
    """What Byzantine workers send instead of their terms.

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
    attackers: int

    def workers(self, count: int) -> np.ndarray:
        """Return the numbers of the attackers among `count` workers."""
        return np.arange(count - self.attackers, count)
