"""Trivance all-reduce (Jürß 2026): windows that triple, on both sides of each rank."""

from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np

from dml.types import Comm, Op
from dml.wire.collectives.steps.run import allreduce_along
from dml.wire.plans.topology import SEGMENT
from dml.wire.plans.windows import Pattern, WindowsPlan, along_rounds, shifted


def trivance_allreduce(
    comm: Comm,
    buffer: np.ndarray,
    op: Op = np.add,
    segment: int = SEGMENT,
    sides: Sequence[int] = (),
    result: np.ndarray | None = None,
) -> None:
    """Reduce in place over all ranks.

        p = 9, window of rank 4            4            before
                                         3 4 5          step 0: from r - 1, from r + 1
                                   0 1 2 3 4 5 6 7 8    step 1: from r - 3, from r + 3
        before it the reduce-scatter: the same in reverse

    With d chunks in its window a rank exchanges windows with ranks r - d and r + d: the
    distance triples in each step. The last step sends the missing chunks only. No rank
    is folded. Chunk c: with the largest distance first, ranks add the sum of the rank
    at distance d on the one side, then that on the other, to their own.
    A rank has one port in the cost model, so that a step of two messages is two rounds;
    a machine with two ports overlaps them. The variant that sends full buffers in
    ⌈log₃ p⌉ steps has different bits on different ranks and is not offered.
    At most 4⌈log₃ p⌉ rounds, 2(p-1)n elements over all ranks:
    4⌈log₃ p⌉α + 2(p-1)/p·nβ + (p-1)/p·nγ.

    Args:
      comm: The ranks.
      buffer: Buffer to reduce.
      op: The reduction.
      segment: Bytes of a segment.
      sides: Sides of a torus with product p, whose dimensions are reduced one after
        another, the last one first; rank = its coordinates, the last one fastest. ()
        is a ring.
      result: Array of a narrower type for the sums; see `allreduce_by`.
    """
    lines = sides or (comm.size,)
    allreduce_along(TRIVANCE, comm, buffer, op, segment, lines, result)


def tripled(size: int) -> list[tuple[int, int, int]]:
    """Return (chunks of the window, chunks from the left, from the right) by step."""
    steps, window = [], 1
    while window < size:
        missing = min(size - window, 2 * window)
        left = missing if missing <= window else -(-missing // 2)
        steps.append((window, left, missing - left))
        window += missing
    return steps


def trivance_counts(size: int) -> list[int]:
    """Return the number of chunks that a rank sends in each round."""
    return [
        count for _, left, right in tripled(size) for count in (left, right) if count
    ]


@lru_cache(maxsize=64)
def trivance_plan(size: int) -> WindowsPlan:
    """Return the all-gather of `size` ranks."""
    steps, before = [], 0  # chunks of the window before the own chunk
    for window, left, right in tripled(size):
        # the last chunks of the window, to the right; the first ones, to the left
        last = window - before - left
        steps.append(shifted(size, window, last, left))
        if right:
            steps.append(shifted(size, -window, -before, right))
        before += left
    return WindowsPlan(np.arange(size), tuple(steps))


TRIVANCE = Pattern(trivance_plan, trivance_counts)
trivance = partial(along_rounds, TRIVANCE)
