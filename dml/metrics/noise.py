"""The gradient noise scale (McCandlish 2018, appendix A.1) by squared norms.

    E |g_n|² = |G|² + tr(Σ) / n        for the mean gradient g_n of n examples

The two unknowns follow from two values of n, such as the sizes of a rank's shard and of
the minibatch. Their ratio tr(Σ) / |G|² is roughly the batch size above which larger
batches have diminishing returns.
"""

import math

from dml.types import BadInput


def noise(
    small_square: float, large_square: float, small: float, large: float
) -> tuple[float, float]:
    """Return unbiased estimates of |G|² and tr(Σ); either may be negative.

    Args:
      small_square: Squared norm of a mean gradient over `small` examples, or a mean of
        such squared norms.
      large_square: The same for `large` examples.
      small: Smaller number of examples.
      large: Larger number of examples.
    """
    if not 0 < small < large:
        raise BadInput(
            f"expected 0 < small < large examples, got {small=} and {large=}; use at "
            "least two ranks or --accumulate=2"
        )
    signal = (large * large_square - small * small_square) / (large - small)
    return signal, (small_square - large_square) / (1 / small - 1 / large)


class Noise:
    """Exponential moving averages of both estimates, and their ratio.

    The ratio is inaccurate in the first steps.
    """

    def __init__(self, decay: float = 0.95) -> None:
        self.decay = decay
        self.signal = self.noise = 0.0

    def add(
        self, small_square: float, large_square: float, small: float, large: float
    ) -> float:
        """Add a step's squared norms; return the noise scale so far."""
        signal, spread = noise(small_square, large_square, small, large)
        self.signal += (1 - self.decay) * (signal - self.signal)
        self.noise += (1 - self.decay) * (spread - self.noise)
        return self.scale

    @property
    def scale(self) -> float:
        """The ratio of the averages; NaN before the first step.

        The bias of averages that start at 0 cancels.
        """
        if self.signal > 0:
            return self.noise / self.signal
        # The estimate of |G|² is not positive, so the scale is infinite.
        return math.inf if self.noise > 0 else math.nan
