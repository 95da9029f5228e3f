"""The partitioner: seconds of every layer in, the layers of every part out.

seconds   1 1 1 4 2 2 1        A pipeline is as fast as its slowest part, so the
3 parts  |1 1 1|4|2 2 1|       largest sum is the smallest there is: 5. As many
                               layers in each part would take 6 (4 + 2).
"""

from collections.abc import Sequence

import numpy as np

from dml.types import BadInput
from dml.wire.topology import chunks


def stages(seconds: Sequence[float], count: int) -> list[range]:
    """Cut the layers into count parts in a row, the slowest as fast as can be.

    Exact, in O(count · layers²) of numpy's time: best[i] is the smallest largest sum of
    the first i layers in so many parts, each of one layer at least.
    """
    layers = len(seconds)
    if count < 1 or layers < count:
        raise BadInput(
            f"expected a layer at least for every part, got {layers} layers and "
            f"{count} parts; pass fewer stages or rounds, or more layers"
        )
    sums = np.concatenate([[0.0], np.cumsum(seconds)])
    best = np.where(np.arange(layers + 1) > 0, np.inf, 0.0)  # in no parts: no layers
    cuts = []
    for _ in range(count):
        # row i, column j: the last part has the layers j ... i - 1
        last = np.maximum(best, sums[:, None] - sums)
        last[np.triu_indices(layers + 1)] = np.inf
        cuts.append(last.argmin(axis=1))
        best = last.min(axis=1)
    found: list[range] = []
    end = layers
    for cut in reversed(cuts):
        found.insert(0, range(int(cut[end]), end))
        end = found[0].start
    return found


def evenly(layers: int, count: int) -> list[range]:
    """Cut the layers into count parts of as many layers, or one more."""
    return [range(layers)[chunk] for chunk in chunks(layers, count)]


def imbalance(seconds: Sequence[float], cuts: Sequence[range]) -> float:
    """Return the slowest part's time over the mean: 1 where all are as fast."""
    each = [sum(seconds[cut.start : cut.stop]) for cut in cuts]
    return max(each) * len(each) / sum(each)
