"""Attacks of Byzantine workers by name: NAME or NAME:ARGUMENT.

    sign_flip:1    the worker's own term times -1
    noise:10       normal numbers of 10 times the root mean square of its term
    nan, inf       values that are not finite
    silent         zeros
    late:10        its own term of 10 updates before
    copy           the term of an honest worker, another one for each attacker
    mimic:0        the term of honest worker 0, the same for all attackers
    ipm:0.1        -ε μ, where μ is the mean of the honest terms (Xie 2019)
    alie           μ - z σ, where σ is their standard deviation (Baruch 2019)
    optimal_ipm, optimal_alie    with the factor that moves the estimate farthest from μ
    label_flip     the gradient of wrong labels; see `dml.data.poison`

By `alie` and `ipm` the attackers agree on one vector that rules can hardly tell from
the honest ones. σ is of the honest terms themselves (divisor n-f), and its sign is that
of Baruch's code; μ + z σ is as far away. optimal_ipm:0.8 and optimal_alie:0.8 have the
line search of ByzFL with this ratio of steps, which is often farther from the optimum.
"""

from collections.abc import Callable, Mapping
from functools import partial
from statistics import NormalDist
from typing import Annotated
from zlib import crc32

import numpy as np

from dml.types import BadInput, spec
from dml.types.ranges import MAX_SIZE, Range
from dml.wire.reducers.names import LABEL_FLIP
from dml.wire.reducers.robust.rule import Attack, Byzantine, Slice
from dml.wire.reducers.robust.search import farthest, line_search

SEEDING = 256  # elements of a term that are part of a seed

Factor = Annotated[float, Range(0, MAX_SIZE)]
Ratio = Annotated[float, Range(0.1, 0.99)]
Worker = Annotated[int, Range(0, MAX_SIZE)]
Lag = Annotated[int, Range(1, 1000)]  # updates


def flip_sign(factor: float, term: np.ndarray, step: int, worker: int) -> None:
    term *= np.float32(-factor)


def send_noise(factor: float, term: np.ndarray, step: int, worker: int) -> None:
    size = np.sqrt(np.mean(np.square(term, dtype=np.float64))) if len(term) else 0.0
    # the term is part of the seed: buckets of an update have different noise
    draws = np.random.default_rng([step, worker, crc32(term[:SEEDING].tobytes())])
    term[:] = factor * size * draws.standard_normal(len(term), np.float32)


def send_value(value: float, term: np.ndarray, step: int, worker: int) -> None:
    term[:] = value


def copy(part: Slice) -> None:
    """Copy the terms of honest workers, in their order."""
    part.rows[part.attackers] = part.rows[np.resize(part.honest, len(part.attackers))]


def mimic(worker: int, part: Slice) -> None:
    """Repeat the term of one honest worker (Karimireddy 2022)."""
    part.rows[part.attackers] = part.rows[part.honest[worker % len(part.honest)]]


def opposed(part: Slice) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean μ of the honest terms, and the direction -μ from 0."""
    mean = part.rows[part.honest].mean(axis=0, dtype=np.float64)
    return np.zeros_like(mean), -mean


def deviating(part: Slice) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean μ of the honest terms, and the direction -σ from it."""
    rows = part.rows[part.honest]
    return rows.mean(axis=0, dtype=np.float64), -rows.std(axis=0, dtype=np.float64)


def inner_product(factor: float, part: Slice) -> None:
    """Send -ε μ, which reverses the mean of all terms if εf > n-f."""
    start, direction = opposed(part)
    part.rows[part.attackers] = start + factor * direction


def a_little_is_enough(factor: float | None, part: Slice) -> None:
    """Send μ - z σ; None: the z that enough honest values of a coordinate exceed."""
    start, direction = deviating(part)
    z = alie_factor(len(part.rows), len(part.attackers)) if factor is None else factor
    part.rows[part.attackers] = start + z * direction


def alie_factor(count: int, attackers: int) -> float:
    """Return z = Φ⁻¹((n-f-s)/(n-f)) with s = ⌊n/2+1⌋ - f.

    s honest values of a coordinate are expected farther out than those of the
    attackers, who then have a majority. z is 0 for f = 2 of an even n and for f = 1 of
    an odd n: the attackers send μ, which is no attack. See alie:<z>.
    """
    if 2 * attackers > count:
        raise BadInput(
            f"expected at most {count // 2} attackers of {count} workers with "
            f"--attack=alie, got {attackers}; pass fewer, or alie:<z>"
        )
    honest, supporters = count - attackers, count // 2 + 1 - attackers
    quantile = (honest - supporters) / honest
    return NormalDist().inv_cdf(quantile) if quantile else 0.0  # n = 2: σ is 0


def send_farthest(
    vectors: Callable[[Slice], tuple[np.ndarray, np.ndarray]],
    ratio: float | None,
    part: Slice,
) -> None:
    """Send the vector of a line for which the estimate is farthest from μ; collective.

    Args:
      vectors: slice -> start and direction of the line.
      ratio: Ratio of steps of ByzFL's line search; None: a search at all scales.
      part: The slice.
    """
    start, direction = vectors(part)
    mean = part.rows[part.honest].mean(axis=0, dtype=np.float64)

    def deviation(factor: float) -> float:
        part.rows[part.attackers] = start + factor * direction
        error = part.estimate(part.rows) - mean
        return float(part.total(np.array([np.vdot(error, error)]))[0])

    best = farthest(deviation) if ratio is None else line_search(deviation, ratio)
    part.rows[part.attackers] = start + best * direction


def sign_flip(factor: Factor = 1.0) -> Attack:
    return Attack(own=partial(flip_sign, factor))


def noise(factor: Factor = 10.0) -> Attack:
    return Attack(own=partial(send_noise, factor))


def late(updates: Lag = 10) -> Attack:
    return Attack(lag=updates)


def mimicry(worker: Worker = 0) -> Attack:
    return Attack(forge=partial(mimic, worker))


def ipm(epsilon: Factor = 0.1) -> Attack:
    return Attack(forge=partial(inner_product, epsilon))


def alie(z: Factor | None = None) -> Attack:
    return Attack(forge=partial(a_little_is_enough, z))


def optimal_ipm(ratio: Ratio | None = None) -> Attack:
    return Attack(forge=partial(send_farthest, opposed, ratio))


def optimal_alie(ratio: Ratio | None = None) -> Attack:
    return Attack(forge=partial(send_farthest, deviating, ratio))


ATTACKS: Mapping[str, Callable[..., Attack]] = {
    "sign_flip": sign_flip,
    "noise": noise,
    "nan": lambda: Attack(own=partial(send_value, np.nan)),
    "inf": lambda: Attack(own=partial(send_value, np.inf)),
    "silent": lambda: Attack(own=partial(send_value, 0.0)),
    "late": late,
    "copy": lambda: Attack(forge=copy),
    "mimic": mimicry,
    "ipm": ipm,
    "alie": alie,
    "optimal_ipm": optimal_ipm,
    "optimal_alie": optimal_alie,
    LABEL_FLIP: lambda: Attack(),
}


def byzantine(text: str, attackers: int) -> Byzantine:
    """Return the attack that a text names, and its number of attackers.

    Args:
      text: NAME or NAME:ARGUMENT, with a name of ATTACKS.
      attackers: Number of attackers.
    """
    return Byzantine(spec.call(text, ATTACKS, "an attack"), attackers)
