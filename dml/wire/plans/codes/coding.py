"""Codes of gradients: which worker computes which parts, and how the sum is decoded.

    repetition, n = 6, 3 copies      cyclic, n = 5, 3 copies
      part  0 1                        part  0 1 2 3 4
    worker 0  1 .                  worker 0  a b c . .     Worker w sends the term
    worker 1  . 1                  worker 1  . a b c .     Σ_k B[w, k] g_k of the
    worker 2  1 .                  worker 2  . . a b c     gradients g_k of its parts.
       …      …                    worker 3  c . . a b     Any n-2 rows of B span the
    worker 5  . 1                  worker 4  b c . . a     row of ones.

With r copies of each part the sum of all parts is decoded without any r-1 workers
(Tandon 2017, stragglers), or with any s = (r-1)/2 workers that send wrong terms (DRACO,
Chen 2018). Repetition needs r to divide n; its decoding selects terms, so that it does
not round. Worker w is in group w mod n/r: consecutive workers are in different groups.

The cyclic code is a real BCH code: its terms, as a sequence over workers, lack the r-1
highest frequencies. The generator polynomial

    b(x) = Π (x - e^{2πi k/n}),  k = n/2 - (r-2)/2, …, n/2 + (r-2)/2

is real, for these k are symmetric around n/2. x^n equals 1 at all of its roots, or -1
at all of them; then coefficients change their sign where they wrap around, and columns
are divided by half a wave of a cosine, so that the row of ones remains a combination.
Any r-1 columns of the checks, which are powers of n distinct nodes, are independent:
the code has distance r, the greatest one for r coefficients in a row.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dml.types import BadInput, spec
from dml.types.ranges import Size

DEFAULT = "repetition:1"
DIGITS = 3.0  # greatest loss of decimal digits; float32 has 7


class Code(NamedTuple):
    """A code of the gradients of a minibatch.

    Attributes:
      copies: Number of workers that compute a part; parts of a worker in a cyclic code.
      coefficients: n x k: factor of each part's gradient in each worker's term; 0: the
        worker does not compute the part.
      checks: (copies-1) x n; checks @ coefficients is 0. Row j has the powers k_0 + j
        of the nodes, divided by factors of the workers. None for repetition.
    """

    copies: int
    coefficients: np.ndarray
    checks: np.ndarray | None = None

    @property
    def workers(self) -> int:
        return len(self.coefficients)

    @property
    def parts(self) -> int:
        """Number of parts of a minibatch."""
        return self.coefficients.shape[1]

    @property
    def faulty(self) -> int:
        """Number of wrong terms that decoding corrects: of a group, or of all."""
        return (self.copies - 1) // 2

    @property
    def repeats(self) -> bool:
        """Return whether the terms of a group are equal."""
        return self.checks is None

    def parts_of(self, worker: int) -> np.ndarray:
        return np.flatnonzero(self.coefficients[worker])

    def workers_of(self, part: int) -> np.ndarray:
        return np.flatnonzero(self.coefficients[:, part])


def repetition(workers: int, copies: int) -> Code:
    """Return the code in which `copies` workers compute the same part.

    Worker w computes part w mod workers/copies.
    """
    check_copies(workers, copies)
    if workers % copies:
        lower = workers - workers % copies
        raise BadInput(
            f"expected a number of workers divisible by {copies}, the copies of a part "
            f"by repetition, got {workers}; use {lower} or {lower + copies} workers"
        )
    groups = workers // copies
    coefficients = np.tile(np.eye(groups), (copies, 1))
    return Code(copies, coefficients)


def cyclic(workers: int, copies: int) -> Code:
    """Return the code in which worker w combines the parts w … w+copies-1 mod n."""
    check_copies(workers, copies)
    n, redundancy = workers, copies - 1
    frequencies = n / 2 + np.arange(redundancy) - (redundancy - 1) / 2
    roots = np.exp(2j * np.pi * frequencies / n)
    generator = np.atleast_1d(np.poly(roots)).real[::-1]
    wrapped = 1 if (n + redundancy) % 2 else -1  # x^n at the roots
    worker, place = np.divmod(np.arange(n * copies), copies)
    part = worker + place
    coefficients = np.zeros((n, n))
    coefficients[worker, part % n] = np.where(part < n, 1, wrapped) * generator[place]
    if wrapped < 0:
        coefficients /= np.cos(np.pi * (np.arange(n) - (n - 1) / 2) / n)
    factors = np.sqrt(copies) / np.linalg.norm(coefficients, axis=1)
    powers = np.exp(2j * np.pi * np.outer(frequencies, np.arange(n)) / n)
    return Code(copies, coefficients * factors[:, None], powers / factors)


def nodes(workers: int) -> np.ndarray:
    """Return the nodes of the workers in the checks: the n-th roots of unity."""
    return np.exp(2j * np.pi * np.arange(workers) / workers)


def check_copies(workers: int, copies: int) -> None:
    """Raise BadInput unless there is a worker for each copy."""
    if not 1 <= copies <= workers:
        raise BadInput(
            f"expected at least {max(copies, 1)} workers for {copies} copies of each "
            f"part, got {workers}; use more workers, or a code with fewer copies"
        )


CODES: dict[str, Callable[[int, int], Code]] = {
    "repetition": repetition,
    "cyclic": cyclic,
}


@lru_cache(maxsize=8)  # virtual ranks share codes
def make_code(text: str, workers: int) -> Code:
    """Return the code of `NAME:FAULTY`, which corrects FAULTY wrong terms.

    Raises:
      BadInput: There is no such code of this number of workers, or its decoding loses
        more than 3 decimal digits.
    """
    faulty = spec.call(text, dict.fromkeys(CODES, wrong_terms), "a code")
    made = CODES[spec.name_of(text)](workers, 2 * faulty + 1)
    check_digits(made, faulty)
    return made


def wrong_terms(faulty: Size = 1) -> int:
    return faulty


def check_digits(code: Code, lost: int) -> None:
    """Raise BadInput if decoding without `lost` workers loses too many digits."""
    digits = digits_lost(code, lost)
    if digits > DIGITS:
        raise BadInput(
            f"expected a cyclic code whose decoding loses at most {DIGITS:g} decimal "
            f"digits, got {digits:.1f} without {lost} of {code.workers} workers; use "
            "fewer workers, a code for fewer wrong or late ones, or repetition"
        )


def decoding(code: Code, available: np.ndarray) -> np.ndarray:
    """Return the weight of each worker's term in the sum of all parts.

    The weights of a cyclic code are those of the smallest norm. Repetition selects the
    first available worker of each group, with weight 1.

    Args:
      code: The code.
      available: Whether each worker's term is used; others have weight 0.
    """
    weights = np.zeros(code.workers)
    if code.repeats:
        for part in range(code.parts):
            members = code.workers_of(part)
            left = members[available[members]]
            if not len(left):
                raise BadInput(
                    f"expected a term of one of the workers {members.tolist()} for "
                    f"part {part}, got none; use a code with more copies"
                )
            weights[left[0]] = 1
        return weights
    missing = int((~available).sum())
    if missing >= code.copies:
        raise BadInput(
            f"expected at least {code.workers - code.copies + 1} terms of "
            f"{code.workers} workers, got {code.workers - missing}; use a code with "
            "more copies"
        )
    rows = code.coefficients[available]
    weights[available] = np.linalg.lstsq(rows.T, np.ones(code.parts), rcond=None)[0]
    return weights


def digits_lost(code: Code, lost: int) -> float:
    """Return the decimal digits that decoding loses without the worst workers.

    It is the logarithm of Σ_w |a_w| Σ_k |B_wk| / k, for weights a and k parts: the
    rounding errors of the terms, relative to those of a plain sum. The worst workers
    are consecutive ones, whose nodes are closest.

    Args:
      code: The code.
      lost: Number of workers whose terms are not used.
    """
    if code.repeats:
        return 0.0
    sizes = np.abs(code.coefficients).sum(axis=1)
    worst = 1.0
    for first in range(code.workers):
        available = np.ones(code.workers, bool)
        available[(first + np.arange(lost)) % code.workers] = False
        worst = max(worst, np.abs(decoding(code, available)) @ sizes / code.parts)
    return float(np.log10(worst))
