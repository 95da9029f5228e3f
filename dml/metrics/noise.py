"""The gradient noise scale (McCandlish 2018, appendix A.1) by squared norms.

    E |g_n|² = |G|² + tr(Σ) / n        for the mean gradient g_n of n examples

G is the gradient over all examples, Σ the covariance of the gradients of single
examples. |G|² and tr(Σ) follow from E |g_n|² for two values of n, such as the number of
examples of a rank and of the minibatch. The noise scale tr(Σ) / |G|² is roughly the
batch size above which larger batches have diminishing returns.
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
    """Exponential moving averages of |G|² and tr(Σ), and their ratio.

    The ratio is inaccurate in the first steps.

    Args:
      decay: Weight of the previous average in each step.
    """

    def __init__(self, decay: float = 0.95) -> None:
        self.decay = decay
        self.signal = self.noise = 0.0

    def add(
        self, small_square: float, large_square: float, small: float, large: float
    ) -> float:
        """Add the squared norms of a step; return the noise scale so far.

        The arguments are those of the function `noise`.
        """
        signal, variance = noise(small_square, large_square, small, large)
        self.signal += (1 - self.decay) * (signal - self.signal)
        self.noise += (1 - self.decay) * (variance - self.noise)
        return self.scale

    @property
    def scale(self) -> float:
        """The ratio of the averages; NaN before the first step.

        Both averages start at 0; this bias cancels in their ratio. If the estimate of
        |G|² is not positive, the scale is infinite.
        """
        if self.signal > 0:
            return self.noise / self.signal
        return math.inf if self.noise > 0 else math.nan
