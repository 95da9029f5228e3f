"""Codes against stragglers: which terms suffice for the sum of all parts, and weights.

    repetition:1, n = 4        cyclic:1, n = 4            uncoded:1, n = 4
      part  0 1                  part  0 1 2 3              part  0 1 2 3
    worker 0  1 .              worker 0  a b . .          worker 0  1 . . .
    worker 1  . 1              worker 1  . a b .          worker 1  . 1 . .
    worker 2  1 .              worker 2  . . a b          worker 2  . . 1 .
    worker 3  . 1              worker 3  b . . a          worker 3  . . . 1
    a term of each part        any 3 terms                any 3 terms, without a part

NAME:S tolerates S stragglers (Tandon 2017). Each worker computes S+1 parts of n, or one
of n/(S+1): fewer do not suffice. Repetition selects a term of each group, so that the
sum has the same bits whichever worker of a group is first. It needs n-S terms in the
worst case, and often fewer. `cyclic` solves a·B[arrived] = 1 for the weights a with the
code of `coding`, `random` with the random code of Tandon (algorithm 2). `uncoded`
omits the parts of stragglers (Chen 2016) and scales the others by n/(n-S);
uncoded:0 waits for all workers.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np

from dml.types import BadInput, spec
from dml.types.ranges import Size
from dml.wire.plans.codes.coding import (
    DIGITS,
    Code,
    check_copies,
    check_digits,
    cyclic,
    decoding,
    repetition,
)

SETS = 1000  # sets of stragglers that are all tried
DRAWN = 300  # random sets, if there are more


class DecodingPlan(NamedTuple):
    """A code of the parts of a minibatch, and the number of stragglers.

    Attributes:
      code: Which worker computes which parts.
      stragglers: Number S of workers whose terms are not needed.
      exact: Whether the decoded sum has all parts.
    """

    code: Code
    stragglers: int
    exact: bool = True

    @property
    def load(self) -> float:
        """Examples that a worker reads, relative to 1/n of a minibatch."""
        return float(self.code.copies)

    def suffices(self, arrived: np.ndarray) -> bool:
        """Return whether the terms of these workers suffice.

        Args:
          arrived: Whether each worker's term has arrived.
        """
        if self.exact and self.code.repeats:
            return bool(self.code.coefficients[arrived].any(axis=0).all())
        return int(arrived.sum()) >= self.code.workers - self.stragglers

    def weights(self, arrived: np.ndarray) -> np.ndarray:
        """Return the weight of each worker's term in the sum of all parts.

        Args:
          arrived: Whether each worker's term has arrived.
        """
        if self.exact:
            return decoding(self.code, arrived)
        return arrived * (self.code.workers / max(1, int(arrived.sum())))


def random_code(workers: int, copies: int, seed: int = 0) -> Code:
    """Return Tandon's code, whose checks H are random with H·1 = 0.

    Row w of the coefficients has the parts w … w+copies-1 mod n, and is in the null
    space of H, to which the row of ones belongs.

    Args:
      workers: Number n of workers.
      copies: Number of workers that compute a part.
      seed: Random seed of H.
    """
    check_copies(workers, copies)
    draws = np.random.default_rng(seed)
    checks = draws.standard_normal((copies - 1, workers))
    checks[:, -1] = -checks[:, :-1].sum(axis=1)
    coefficients = np.zeros((workers, workers))
    for worker in range(workers):
        parts = (worker + np.arange(copies)) % workers
        others = np.linalg.solve(checks[:, parts[1:]], -checks[:, parts[0]])
        coefficients[worker, parts] = 1, *others
    return Code(copies, coefficients, checks)


CODES: dict[str, Callable[[int, int], Code]] = {
    "repetition": repetition,
    "cyclic": cyclic,
    "random": random_code,
    "uncoded": lambda workers, copies: repetition(workers, 1),
}


def late_terms(stragglers: Size = 1) -> int:
    return stragglers


@lru_cache(maxsize=16)  # virtual ranks share plans
def make_plan(text: str, workers: int) -> DecodingPlan:
    """Return the plan of `NAME:STRAGGLERS`.

    Raises:
      BadInput: There is no such code of this number of workers, or its decoding loses
        more than 3 decimal digits.
    """
    stragglers = spec.call(text, dict.fromkeys(CODES, late_terms), "a code")
    name = spec.name_of(text)
    if stragglers >= workers:
        raise BadInput(
            f"expected fewer stragglers than the {workers} workers, got {stragglers}; "
            "use more workers, or a code for fewer stragglers"
        )
    code = CODES[name](workers, stragglers + 1)
    if name == "cyclic":
        check_digits(code, stragglers)
    elif name == "random":
        check_random(code, stragglers)
    return DecodingPlan(code, stragglers, exact=name != "uncoded" or not stragglers)


def check_random(code: Code, stragglers: int) -> None:
    """Raise BadInput if a random code loses too many digits."""
    digits = conditioning(code, stragglers).digits
    if digits > DIGITS:
        raise BadInput(
            f"expected a random code whose decoding loses at most {DIGITS:g} decimal "
            f"digits, got {digits:.1f} without {stragglers} of {code.workers} workers; "
            "use cyclic or repetition"
        )


class Conditioning(NamedTuple):
    """The worst decoding without some workers.

    Attributes:
      residual: Largest element of |a·B - 1|, in float64.
      weight: Largest |a_w|.
      digits: Decimal digits lost, as `coding.digits_lost` defines.
      sets: Number of sets of missing workers that were tried.
    """

    residual: float
    weight: float
    digits: float
    sets: int


def conditioning(code: Code, stragglers: int, seed: int = 0) -> Conditioning:
    """Return the worst decoding over sets of missing workers.

    Args:
      code: The code.
      stragglers: Number of missing workers.
      seed: Random seed of the sets, if not all are tried.
    """
    residual = weight = worst = 0.0
    sizes = np.abs(code.coefficients).sum(axis=1) / code.parts
    tried = list(missing_sets(code.workers, stragglers, seed))
    for missing in tried:
        arrived = np.ones(code.workers, bool)
        arrived[list(missing)] = False
        weights = decoding(code, arrived)
        residual = max(residual, float(abs(weights @ code.coefficients - 1).max()))
        weight = max(weight, float(abs(weights).max()))
        worst = max(worst, float(abs(weights) @ sizes))
    return Conditioning(residual, weight, float(np.log10(max(1, worst))), len(tried))


def missing_sets(
    workers: int, stragglers: int, seed: int = 0
) -> Iterator[tuple[int, ...]]:
    """Yield sets of missing workers: all, or all consecutive and some random ones.

    Args:
      workers: Number of workers.
      stragglers: Number of missing workers.
      seed: Random seed.
    """
    if comb(workers, stragglers) <= SETS:
        yield from combinations(range(workers), stragglers)
        return
    for first in range(workers):
        yield tuple((first + n) % workers for n in range(stragglers))
    draws = np.random.default_rng(seed)
    for _ in range(DRAWN):
        yield tuple(draws.choice(workers, stragglers, replace=False).tolist())
