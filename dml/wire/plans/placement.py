"""Placement of copies of each rank's state in the memory of other ranks.

    groups of 2              ring                         mixed: 7 ranks, 2 copies
    ┌─0⇄1─┐ ┌─2⇄3─┐          0 → 1 → 2 → 3 → 0            ┌─0⇄1─┐ ┌─2⇄3─┐ 4 → 5 → 6 → 4

A rank stores its own state and sends it to the next m - 1 ranks of its ring. A ring of
m ranks is a group: each member has the states of all members. States are lost if m
consecutive ranks of a ring fail. Wang 2023, Gemini, section 4: groups are the best
placement if m divides the number of ranks. Pure arithmetic.
"""

from collections.abc import Collection
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np

from dml.types import BadInput


class Placement(NamedTuple):
    """Rings of consecutive ranks, and the number of copies of a state.

    Attributes:
      rings: Number of ranks of each ring.
      copies: Number of copies of each state, m, including the rank's own.
    """

    rings: tuple[int, ...]
    copies: int

    @property
    def size(self) -> int:
        return sum(self.rings)

    def holders(self, rank: int) -> list[int]:
        """Return the ranks that store the state of a rank: first the rank itself."""
        return self._neighbours(rank, 1)

    def owners(self, rank: int) -> list[int]:
        """Return the ranks whose states a rank stores: first the rank itself."""
        return self._neighbours(rank, -1)

    def _neighbours(self, rank: int, direction: int) -> list[int]:
        start = 0
        for length in self.rings:
            if rank < start + length:
                places = (rank - start + direction * i for i in range(self.copies))
                return [start + place % length for place in places]
            start += length
        raise IndexError(rank)


def groups(size: int, copies: int) -> Placement:
    """Return groups of m ranks; the last group has the remaining ranks, as a ring."""
    check(size, copies)
    last = copies + size % copies
    return Placement((copies,) * (size // copies - 1) + (last,), copies)


def ring(size: int, copies: int) -> Placement:
    """Return one ring of all ranks."""
    check(size, copies)
    return Placement((size,), copies)


PLACEMENTS = {"groups": groups, "ring": ring}


def check(size: int, copies: int) -> None:
    """Raise BadInput if there are more copies than ranks, or none."""
    if not 1 <= copies <= size:
        raise BadInput(
            f"expected 1 to {size} copies on {size} ranks, got {copies}; pass "
            "fewer copies or more ranks"
        )


def recoverable(placement: Placement, failed: Collection[int]) -> bool:
    """Return whether each state has a copy on a rank that has not failed."""
    lost = set(failed)
    return not any(lost.issuperset(placement.holders(rank)) for rank in lost)


def probability(placement: Placement, failures: int) -> float:
    """Return the probability that all states survive the failure of k random ranks.

    A ring is recoverable if it loses no m consecutive ranks. The number of recoverable
    sets is the coefficient of x^k in the product of the polynomials of the rings.
    """
    counts = [1]
    for length in placement.rings:
        factor = [ring_sets(length, placement.copies, k) for k in range(length + 1)]
        counts = [
            sum(
                counts[i] * factor[k - i]
                for i in range(max(0, k - length), min(k + 1, len(counts)))
            )
            for k in range(min(failures, len(counts) + length - 1) + 1)
        ]
    return counts[failures] / comb(placement.size, failures)


def ring_sets(length: int, copies: int, failures: int) -> int:
    """Return the number of sets of k ranks of a ring without m consecutive ranks.

    The s = length - k survivors divide the failures into s runs of at most m - 1, which
    inclusion and exclusion counts. A rotation of the ring has length/s of the sets with
    a survivor at a given place.
    """
    survivors = length - failures
    if not survivors:
        return 0
    runs = sum(
        (-1) ** j * comb(survivors, j) * comb(length - 1 - j * copies, survivors - 1)
        for j in range(failures // copies + 1)
    )
    return length * runs // survivors


def group_formula(size: int, copies: int, failures: int) -> float:
    """Return Gemini's formula for groups, for m to 2m - 1 failures, if m divides N."""
    lost = size // copies * comb(size - copies, failures - copies)
    return 1 - lost / comb(size, failures)


def enumerated(placement: Placement, failures: int) -> float:
    """Return the probability of recovery by enumeration of all sets of failed ranks."""
    sets = combinations(range(placement.size), failures)
    good = sum(recoverable(placement, failed) for failed in sets)
    return good / comb(placement.size, failures)


def sampled(placement: Placement, failures: int, draws: int, seed: int) -> float:
    """Return the share of random sets of failed ranks that are recoverable.

    Args:
      placement: Placement of the copies.
      failures: Number of failed ranks.
      draws: Number of sets.
      seed: Random seed.
    """
    random = np.random.default_rng(seed)
    holders_NxM = np.array([placement.holders(r) for r in range(placement.size)])
    scores_DxN = random.random((draws, placement.size))
    failed_DxN = np.zeros(scores_DxN.shape, bool)
    first = np.argpartition(scores_DxN, failures - 1)[:, :failures]
    np.put_along_axis(failed_DxN, first, True, axis=1)
    lost_DxN = np.all(failed_DxN[:, holders_NxM], axis=2)
    return 1 - float(np.mean(np.any(lost_DxN, axis=1)))
