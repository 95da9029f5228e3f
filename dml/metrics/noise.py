"""The gradient noise scale (McCandlish 2018, appendix A.1) by squared norms.

    E |g_n|² = |G|² + tr(Σ) / n        for the mean gradient g_n of n examples

Its two unknowns follow from two sizes n, such as a rank's shard and the whole batch.
Their ratio tr(Σ) / |G|² is about the batch beyond which larger ones help little.
"""

import math

from dml.types import BadInput


def noise(
    small_square: float, large_square: float, small: float, large: float
) -> tuple[float, float]:
    """Return unbiased estimates of |G|² and of tr(Σ); both may be below 0.

    The squares are of gradients of `small` and `large` examples, or means of such.
    """
    if not 0 < small < large:
        raise BadInput(
            f"expected gradients of fewer examples and of more, got {small=} and "
            f"{large=}; use two ranks or --accumulate=2 at least"
        )
    signal = (large * large_square - small * small_square) / (large - small)
    return signal, (small_square - large_square) / (1 / small - 1 / large)


class Noise:
    """Means of both estimates over steps, and their ratio, which needs many steps."""

    def __init__(self, keep: float = 0.95) -> None:
        self.keep = keep  # of the means at each step
        self.signal = self.noise = 0.0

    def add(
        self, small_square: float, large_square: float, small: float, large: float
    ) -> float:
        """Add a step's squared norms; return the noise scale so far."""
        signal, spread = noise(small_square, large_square, small, large)
        self.signal += (1 - self.keep) * (signal - self.signal)
        self.noise += (1 - self.keep) * (spread - self.noise)
        return self.scale

    @property
    def scale(self) -> float:
        """The ratio, in which starting both means at 0 cancels; NaN before a step."""
        if self.signal > 0:
            return self.noise / self.signal
        # no signal above the noise: no batch is too large
        return math.inf if self.noise > 0 else math.nan
