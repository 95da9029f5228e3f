"""Bruck's all-gather (Bruck 1997): windows of 1, 2, 4, … chunks, any number of ranks.

    p = 5, window of rank 0     0                 before
                                0 1               step 0: from r + 1, 1 chunk
                                0 1 2 3           step 1: from r + 2, 2 chunks
                                0 1 2 3 4         step 2: from r + 4, the last chunk

In step i rank r receives the first chunks of the window of rank r + 2^i, and sends its
own first chunks to rank r - 2^i. No rank is folded.
⌈lg p⌉ rounds, (p-1)n elements over all ranks: ⌈lg p⌉α + (p-1)/p·nβ; the reduce-scatter
adds (p-1)/p·nγ.
"""

from functools import lru_cache

import numpy as np

from dml.wire.plans.windows import Pattern, WindowsPlan, shifted


def bruck_counts(size: int) -> list[int]:
    """Return the number of chunks that a rank sends in each step."""
    powers = [1 << i for i in range((size - 1).bit_length())]
    return [min(power, size - power) for power in powers]


@lru_cache(maxsize=64)
def bruck_plan(size: int) -> WindowsPlan:
    """Return the all-gather of `size` ranks."""
    steps = [
        shifted(size, -(1 << i), 0, count) for i, count in enumerate(bruck_counts(size))
    ]
    return WindowsPlan(np.arange(size), tuple(steps))


BRUCK = Pattern(bruck_plan, bruck_counts)
