"""All-gather by neighbour exchange (Chen 2005): p/2 steps between adjacent ranks.

    0 ── 1   2 ── 3   4 ── 5       step 0: one chunk
    5 ─┐ 1 ── 2   3 ── 4   ┌─ 0    step 1: two chunks, those of step 0
    0 ── 1   2 ── 3   4 ── 5       step 2: the two chunks that were received last, …

A rank sends in each step what it received in the step before. An odd number of ranks
has no such pairs; its steps are those of a ring, one chunk each.
p/2 rounds, (p-1)n elements over all ranks: p/2·α + (p-1)/p·nβ; the reduce-scatter adds
(p-1)/p·nγ. For odd p: p-1 rounds.
"""

from functools import lru_cache

import numpy as np

from dml.wire.plans.windows import Pattern, Step, WindowsPlan, shifted


def neighbour_counts(size: int) -> list[int]:
    """Return the number of chunks that a rank sends in each step."""
    return [1] * (size - 1) if size % 2 else [1] + [2] * (size // 2 - 1)


@lru_cache(maxsize=64)
def neighbour_plan(size: int) -> WindowsPlan:
    """Return the all-gather of `size` ranks."""
    ranks = np.arange(size)
    if size % 2:
        ring = [shifted(size, 1, -i, 1) for i in range(size - 1)]
        return WindowsPlan(ranks, tuple(ring))
    latest, steps = ranks, []
    for i, count in enumerate(neighbour_counts(size)):
        partner = np.where(ranks % 2 == i % 2, ranks + 1, ranks - 1) % size
        steps.append(Step(partner, partner, latest, count))
        latest = latest[partner] if i else ranks & -2
    return WindowsPlan(ranks, tuple(steps))


NEIGHBOURS = Pattern(neighbour_plan, neighbour_counts)
