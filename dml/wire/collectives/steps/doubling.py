"""All-gather by recursive doubling: partners exchange everything that they have.

    0 ── 1   2 ── 3     step 0: partner r xor 1, 1 chunk
    0 ────── 2  …       step 1: partner r xor 2, 2 chunks

In reverse it is a reduce-scatter by recursive halving. If p is not a power of two, the
first ranks are folded in pairs.
⌈lg p⌉ rounds, (p-1)n elements over all ranks: ⌈lg p⌉α + (p-1)/p·nβ; the reduce-scatter
adds (p-1)/p·nγ. Folding adds 2 rounds, and for each pair the chunk of one rank and n
elements.
"""

from functools import lru_cache

import numpy as np

from dml.wire.collectives.steps.swing import doubled
from dml.wire.plans.windows import Pattern, Step, WindowsPlan


@lru_cache(maxsize=64)
def doubling_plan(size: int) -> WindowsPlan:
    """Return the all-gather of `size` ranks, a power of two."""
    ranks, steps = np.arange(size), []
    for count in doubled(size):
        steps.append(Step(ranks ^ count, ranks ^ count, ranks & -count, count))
    return WindowsPlan(ranks, tuple(steps))


DOUBLING = Pattern(doubling_plan, doubled, power=True)
