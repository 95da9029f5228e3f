"""Circulant all-reduce (Träff 2024): ⌈lg p⌉ steps each way, for any number of ranks."""

from functools import lru_cache, partial

import numpy as np

from dml.types import Comm, Op
from dml.wire.collectives.steps.run import allreduce_by
from dml.wire.plans.topology import SEGMENT
from dml.wire.plans.windows import Pattern, WindowsPlan, allreduce_rounds, shifted


def circulant_allreduce(
    comm: Comm,
    buffer: np.ndarray,
    op: Op = np.add,
    segment: int = SEGMENT,
    result: np.ndarray | None = None,
) -> None:
    """Reduce in place over all ranks.

        p = 5, skips 1, 2, 3     all-gather, window of each rank:
        rank 0   0               step 0: from r + 1, 1 chunk
        rank 0   0 1             step 1: from r + 2, 1 chunk
        rank 0   0 1 2           step 2: from r + 3, 2 chunks
        rank 0   0 1 2 3 4       before it the reduce-scatter: the same in reverse

    The skips are p halved and rounded up, again and again: 17, 9, 5, 3, 2, 1. After the
    all-gather step with skip s the window has as many chunks as the next skip. No rank
    is folded. Chunk c: with the largest skip s first, rank c - j adds the sum of rank
    c - j - s to its own, for all j that have one.
    2⌈lg p⌉ rounds, 2(p-1)n elements over all ranks:
    2⌈lg p⌉α + 2(p-1)/p·nβ + (p-1)/p·nγ.
    """
    allreduce_by(CIRCULANT, comm, buffer, op, segment, result)


def skips(size: int) -> list[int]:
    """Return 1, …, ⌈⌈size/2⌉/2⌉, ⌈size/2⌉, size."""
    found = [size]
    while found[-1] > 1:
        found.append(-(-found[-1] // 2))
    return found[::-1]


def circulant_counts(size: int) -> list[int]:
    """Return the number of chunks that a rank sends in each step."""
    return np.diff(skips(size)).tolist()


@lru_cache(maxsize=64)
def circulant_plan(size: int) -> WindowsPlan:
    """Return the all-gather of `size` ranks."""
    counts = circulant_counts(size)
    steps = [
        shifted(size, -skip, 0, count)
        for skip, count in zip(skips(size)[:-1], counts, strict=True)
    ]
    return WindowsPlan(np.arange(size), tuple(steps))


CIRCULANT = Pattern(circulant_plan, circulant_counts)
circulant = partial(allreduce_rounds, CIRCULANT)
