"""Distributions of compute times, read from text.

shifted_exponential:1,0.5        1 + an exponential of rate 0.5: mean 1 + 1/0.5 seconds
pareto:1,1.5*1,1,0.5             speeds after the star: every third rank at half speed

Each rank draws from its own random stream.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import scipy  # its submodules are imported when they are used

from dml.types import spec
from dml.types.ranges import MAX_NUMBER, Number, Positive, Range

AboveOne = Annotated[float, Range(1, MAX_NUMBER, above=True)]


class DelayDistribution(NamedTuple):
    """A distribution of seconds per step; the draws of ranks are independent."""

    mean: float  # seconds, at speed 1
    draws: Callable[[np.random.Generator, int], np.ndarray]  # n draws
    tail: Callable[[np.ndarray], np.ndarray]  # q -> x with P(X > x) = q
    kth: Callable[[int, int], float] | None = None  # (k, p) -> mean of k-th least of p
    speeds: tuple[float, ...] = (1.0,)  # relative; rank r has speeds[r % len(speeds)]


def constant(c: Number) -> DelayDistribution:
    return DelayDistribution(
        mean=c,
        draws=lambda generator, n: np.full(n, c),
        tail=lambda q: np.full_like(q, c),
        kth=lambda k, p: c,
    )


def shifted_exponential(c: Number, mu: Positive) -> DelayDistribution:
    """c + an exponential of rate mu.

    The k-th least of p draws has the mean c + (H_p - H_(p-k))/mu, H_n = 1 + … + 1/n.
    """
    return DelayDistribution(
        mean=c + 1 / mu,
        draws=lambda generator, n: c + generator.standard_exponential(n) / mu,
        tail=lambda q: c - np.log(q) / mu,
        kth=lambda k, p: c + float(np.sum(1 / np.arange(p - k + 1, p + 1))) / mu,
    )


def pareto(scale: Number, shape: AboveOne) -> DelayDistribution:
    """P(X > x) = (scale/x)^shape; the largest of p draws grows as p^(1/shape).

    The mean is finite for a shape above 1.
    """

    def kth(k: int, p: int) -> float:
        logs = scipy.special.gammaln(
            [p + 1, p - k + 1 - 1 / shape, p - k + 1, p + 1 - 1 / shape]
        )
        return scale * math.exp(logs[0] + logs[1] - logs[2] - logs[3])

    return DelayDistribution(
        mean=scale * shape / (shape - 1),
        draws=lambda generator, n: scale * (1 + generator.pareto(shape, n)),
        tail=lambda q: scale * q ** (-1 / shape),
        kth=kth,
    )


def lognormal(median: Positive, sigma: Number) -> DelayDistribution:
    return DelayDistribution(
        mean=median * math.exp(sigma**2 / 2),
        draws=lambda generator, n: generator.lognormal(math.log(median), sigma, n),
        tail=lambda q: median * np.exp(-sigma * scipy.special.ndtri(q)),
    )


def trace(file: str) -> DelayDistribution:
    """Resample a file of measured seconds, one number per line.

    Values are drawn with replacement, not in order, so that ranks are independent.
    """
    values = np.sort(np.array(Path(file).read_text().split(), float))
    n = len(values)
    if not (n and values[0] >= 0 and np.isfinite(values).all()):
        raise ValueError(f"{file} is not a file of seconds, one per line, 0 or more")

    def kth(k: int, p: int) -> float:
        below = scipy.special.betainc(k, p - k + 1, np.arange(n + 1) / n)
        return float(values @ np.diff(below))

    return DelayDistribution(
        mean=float(values.mean()),
        draws=lambda generator, m: values[generator.integers(n, size=m)],
        tail=lambda q: values[np.clip(np.ceil((1 - q) * n).astype(int) - 1, 0, n - 1)],
        kth=kth,
    )


def relative_speeds(*speed: Positive) -> tuple[float, ...]:
    return speed


DISTRIBUTIONS: dict[str, Callable[..., DelayDistribution]] = {
    "constant": constant,
    "shifted_exponential": shifted_exponential,
    "pareto": pareto,
    "lognormal": lognormal,
    "trace": trace,
}


def delay_distribution(text: str) -> DelayDistribution:
    """Parse a distribution, such as shifted_exponential:1,0.5*1,2."""
    body, star, speeds = text.partition("*")
    made: DelayDistribution = spec.call(body, DISTRIBUTIONS, "a distribution")
    if not star:
        return made
    wanted = "speeds of ranks after *, such as 1,2"
    return made._replace(speeds=spec.apply(speeds, relative_speeds, wanted))


def stream(seed: int, rank: int) -> np.random.Generator:
    """Return a rank's generator; its draws do not depend on the number of ranks."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(rank,)))


def seconds(delay: DelayDistribution, seed: int, steps: int, size: int) -> np.ndarray:
    """Draw the seconds of every step on every rank: an array steps x ranks."""
    times_TxP = np.empty((steps, size))
    for rank in range(size):
        draws = delay.draws(stream(seed, rank), steps)
        times_TxP[:, rank] = draws / delay.speeds[rank % len(delay.speeds)]
    return times_TxP


def step_seconds(delay: DelayDistribution, seed: int, rank: int) -> Iterator[float]:
    """Yield the seconds of each step of a rank, equal to its column of `seconds`."""
    generator, speed = stream(seed, rank), delay.speeds[rank % len(delay.speeds)]
    while True:
        yield float(delay.draws(generator, 1)[0] / speed)


def straggler(
    comm: Any, draws: Iterator[float], scale: float = 1.0
) -> Callable[[Any], bool]:
    """Return a step without work: a function that only advances the virtual clock.

    Args:
      comm: Communicator of the rank.
      draws: Seconds of each step.
      scale: Factor of the seconds.

    Returns:
      request -> whether the full time passed before the request completed.
    """
    return lambda unless: comm.platform.compute(scale * next(draws), unless)


def expected(delay: DelayDistribution, k: int, p: int) -> float | None:
    """Return the mean of the k-th least of p draws; None if speeds differ."""
    if len(set(delay.speeds)) > 1:
        return None
    at_speed_1 = delay.kth(k, p) if delay.kth else integral(delay, k, p)
    return at_speed_1 / delay.speeds[0]


def integral(delay: DelayDistribution, k: int, p: int) -> float:
    """Return the mean of the k-th least of p draws by quadrature of the tail.

    For the k-th least draw x, P(X > x) has the distribution Beta(p-k+1, k), so the mean
    is ∫ tail(Q(w)) dw over 0 < w < 1, where Q is the quantile function of Beta. The
    substitution w = 1/(1 + exp(-π sinh t)) of Takahasi and Mori removes the
    singularities at both ends.
    """
    t = np.linspace(-4, 4, 1025)
    w = 1 / (1 + np.exp(-math.pi * np.sinh(t)))
    weights = math.pi * np.cosh(t) * w * (1 - w) * (t[1] - t[0])
    return float(weights @ delay.tail(scipy.special.betaincinv(p - k + 1, k, w)))
