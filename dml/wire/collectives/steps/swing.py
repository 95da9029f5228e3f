"""Swing all-reduce (De Sensi 2024): exchanges with near ranks, on rings and tori."""

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from math import prod

import numpy as np

from dml.types import BadInput, Comm, Op, Round
from dml.wire.collectives.steps.run import allreduce_by
from dml.wire.plans.topology import SEGMENT, fold
from dml.wire.plans.windows import Pattern, WindowsPlan, allreduce_rounds, nested


def swing_allreduce(
    comm: Comm,
    buffer: np.ndarray,
    op: Op = np.add,
    segment: int = SEGMENT,
    sides: Sequence[int] = (),
    result: np.ndarray | None = None,
) -> None:
    """Reduce in place over all ranks.

        0 ── 1   2 ── 3   4 ── 5   6 ── 7     step 0: even r with r + 1, 1/2 buffer
        0 ── 7   1 ── 2   3 ── 4   5 ── 6     step 1: even r with r - 1, 1/4 buffer
        0 ── 3   2 ── 5   4 ── 7   6 ── 1     step 2: even r with r + 3, 1/8 buffer;
                                              then all steps in reverse, which copy

    In step s rank r exchanges with r + ρ(s) if r is even and with r - ρ(s) if r is odd,
    modulo p; ρ(s) = 1 - 2 + 4 - … = (1 - (-2)^(s+1))/3. Partners keep one half each of
    their common part, as in halving-doubling, but are about 2/3 as far apart, and the
    longest messages go to neighbours. On a torus, step s is step ⌊s/d⌋ along
    dimension s mod d of d dimensions.
    In every step a rank adds its partner's elements to its own: the element that ends
    on rank r is y_0(r) + y_0(partner), and so on.
    If p is not a power of two, the first ranks are folded in pairs.
    2⌈lg p⌉ rounds, 2(p-1)n elements over all ranks; folding adds 2 rounds, and 2n
    elements per pair: 2⌈lg p⌉α + 2(p-1)/p·nβ + (p-1)/p·nγ.

    Args:
      comm: The ranks.
      buffer: Buffer to reduce.
      op: The reduction.
      segment: Bytes of a segment.
      sides: Sides of the torus, powers of two with product p; rank = its coordinates,
        the last one fastest. () is a ring.
      result: Array of a narrower type for the sums; see `allreduce_by`.
    """
    allreduce_by(swing_pattern(tuple(sides)), comm, buffer, op, segment, result)


def swing(
    size: int,
    length: int,
    itemsize: int = 4,
    segment: int = SEGMENT,
    sides: Sequence[int] = (),
) -> Iterator[Round]:
    """Yield the rounds of `swing_allreduce`."""
    pattern = swing_pattern(tuple(sides))
    return allreduce_rounds(pattern, size, length, itemsize, segment)


@lru_cache(maxsize=16)
def swing_pattern(sides: tuple[int, ...] = ()) -> Pattern:
    """Return the all-gather of the steps in reverse order."""
    return Pattern(partial(swing_plan, sides=sides), doubled, power=True)


def doubled(size: int) -> list[int]:
    """Return 1, 2, 4, …, size/2."""
    return [1 << k for k in range(size.bit_length() - 1)]


@lru_cache(maxsize=64)
def swing_plan(size: int, sides: tuple[int, ...]) -> WindowsPlan:
    """Return the all-gather of `size` ranks, a power of two."""
    sides = sides or (size,)
    if prod(sides) != size or any(fold(side).extra for side in sides):
        raise BadInput(
            f"expected sides that are powers of two with product {size}, got {sides}; "
            "pass () for a ring"
        )
    return nested(size, swing_partners(size, sides))


def swing_partners(size: int, sides: Sequence[int]) -> list[np.ndarray]:
    """Return the partners of all ranks in each step, along the dimensions in turn."""
    ranks = np.arange(size)
    spots = np.unravel_index(ranks, sides)
    partners = []
    for s in range(max(sides).bit_length() - 1):
        for dim, side in enumerate(sides):
            if 1 << s < side:
                moved = [*spots]
                moved[dim] = partner(spots[dim], s, side)
                partners.append(np.ravel_multi_index(moved, sides))
    return partners


def partner(rank: np.ndarray, s: int, size: int) -> np.ndarray:
    """Return the partners of ranks in step s on a ring."""
    distance = (1 - (-2) ** (s + 1)) // 3
    return np.where(rank % 2, rank - distance, rank + distance) % size
