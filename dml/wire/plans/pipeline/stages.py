"""Partitions of layers into consecutive parts of balanced time.

seconds   1 1 1 4 2 2 1        A pipeline is as fast as its slowest part. The largest
3 parts  |1 1 1|4|2 2 1|       sum, 5 seconds, is minimal. Parts with equal numbers
                               of layers would take 6 seconds (4 + 2).
"""

from collections.abc import Sequence

import numpy as np

from dml.types import BadInput
from dml.wire.plans.topology import chunks


def balanced_parts(seconds: Sequence[float], count: int) -> list[range]:
    """Return the partition into `count` parts whose slowest part takes least time.

    Exact, by dynamic programming in O(count · layers²) vectorized operations: best[i]
    is the minimal largest sum of the first i layers. A part has at least one layer.
    """
    layers = len(seconds)
    if count < 1 or layers < count:
        raise BadInput(
            f"expected at least one layer for every part, got {layers} layers and "
            f"{count} parts; pass fewer stages or rounds, or more layers"
        )
    sums = np.concatenate([[0.0], np.cumsum(seconds)])
    best = np.where(np.arange(layers + 1) > 0, np.inf, 0.0)  # for 0 parts
    cuts = []
    for _ in range(count):
        # row i, column j: the last part has the layers j ... i - 1
        last = np.maximum(best, sums[:, None] - sums)
        last[np.triu_indices(layers + 1)] = np.inf
        cuts.append(last.argmin(axis=1))
        best = last.min(axis=1)
    parts: list[range] = []
    end = layers
    for cut in reversed(cuts):
        parts.insert(0, range(int(cut[end]), end))
        end = parts[0].start
    return parts


def equal_parts(layers: int, count: int) -> list[range]:
    """Return a partition into `count` parts whose sizes differ by at most one layer."""
    return [range(layers)[chunk] for chunk in chunks(layers, count)]


def imbalance(seconds: Sequence[float], cuts: Sequence[range]) -> float:
    """Return the time of the slowest part divided by the mean time of the parts."""
    times = [sum(seconds[cut.start : cut.stop]) for cut in cuts]
    return max(times) * len(times) / sum(times)
