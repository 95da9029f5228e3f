"""Attacks of Byzantine workers by name: NAME or NAME:ARGUMENT.

    sign_flip:1    the worker's own term times -1
    noise:10       normal numbers of 10 times the root mean square of its own term
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
the honest ones.
"""

from collections.abc import Callable, Mapping
from functools import partial
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from dml.types import BadInput
from dml.wire.reducers.robust.rule import Attack, Byzantine, Slice

LABEL_FLIP = "label_flip"  # an attack on the data, not on the terms
TRIALS = 20  # of the search for a factor
FIRST = 10.0  # the first factor of the search
GOLDEN = (5**0.5 - 1) / 2


def flip_sign(factor: float, term: np.ndarray, step: int, worker: int) -> None:
    term *= np.float32(-factor)


def send_noise(factor: float, term: np.ndarray, step: int, worker: int) -> None:
    size = np.sqrt(np.mean(np.square(term, dtype=np.float64))) if len(term) else 0.0
    draws = np.random.default_rng([step, worker])
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
    """Return the mean μ of the honest terms, and -μ."""
    mean = part.rows[part.honest].mean(axis=0, dtype=np.float64)
    return mean, -mean


def deviating(part: Slice) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean μ of the honest terms, and μ - σ."""
    rows = part.rows[part.honest]
    mean = rows.mean(axis=0, dtype=np.float64)
    return mean, mean - rows.std(axis=0, dtype=np.float64)


def inner_product(factor: float, part: Slice) -> None:
    """Send -ε μ, which reverses the mean of all terms if εf > n-f."""
    _, opposite = opposed(part)
    part.rows[part.attackers] = factor * opposite


def a_little_is_enough(factor: float | None, part: Slice) -> None:
    """Send μ - z σ; None: the z that most honest values of a coordinate exceed."""
    mean, moved = deviating(part)
    z = alie_factor(len(part.rows), len(part.attackers)) if factor is None else factor
    part.rows[part.attackers] = mean + z * (moved - mean)


def alie_factor(count: int, attackers: int) -> float:
    """Return z = Φ⁻¹((n-f-s)/(n-f)) with s = ⌊n/2+1⌋ - f.

    So many honest values of a coordinate must be farther out than the attackers', who
    then have a majority. With few workers z may be 0, which is the mean.
    """
    honest, supporters = count - attackers, count // 2 + 1 - attackers
    return NormalDist().inv_cdf((honest - supporters) / honest)


def optimal_inner_product(part: Slice) -> None:
    """Send -ε μ with the ε that moves the estimate farthest from μ."""
    mean, opposite = opposed(part)
    send_farthest(part, mean, lambda factor: factor * opposite)


def optimal_alie(part: Slice) -> None:
    """Send μ - z σ with the z that moves the estimate farthest from μ."""
    mean, moved = deviating(part)
    send_farthest(part, mean, lambda factor: mean + factor * (moved - mean))


def send_farthest(
    part: Slice, mean: np.ndarray, vector: Callable[[float], np.ndarray]
) -> None:
    """Send the vector whose factor has the largest deviation of the estimate.

    Args:
      part: The slice; collective.
      mean: Mean of the honest terms.
      vector: factor -> what the attackers send.
    """

    def deviation(factor: float) -> float:
        part.rows[part.attackers] = vector(factor)
        error = part.estimate(part.rows) - mean
        return float(part.total(np.array([np.vdot(error, error)]))[0])

    part.rows[part.attackers] = vector(farthest(deviation))


def farthest(deviation: Callable[[float], float]) -> float:
    """Return the factor, at least 0, of the largest deviation that TRIALS calls find.

    Factors are doubled while the deviation grows. Then golden sections of the interval
    around the best one are tried; they find the maximum if there is only one.
    """
    found = {0.0: deviation(0.0)}
    high = FIRST
    while len(found) < TRIALS and high not in found:
        found[high] = deviation(high)
        if found[high] == max(found.values()):
            high *= 2
    low = max([factor for factor in found if factor < high / 2], default=0.0)
    while len(found) < TRIALS:
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        for factor in (left, right):
            if factor not in found and len(found) < TRIALS:
                found[factor] = deviation(factor)
        if found[left] >= found.get(right, -1.0):
            high = right
        else:
            low = left
    return max(found, key=lambda factor: found[factor])


class Entry(NamedTuple):
    """An attack by name.

    Attributes:
      make: argument -> Attack.
      default: Argument if it is omitted; None with `optional`: there is none.
      kind: int or float; None: no argument.
      least: Smallest argument.
    """

    make: Callable[..., Attack]
    kind: Callable[[str], float] | None = None
    default: float | None = None
    least: float = 0.0


ATTACKS: Mapping[str, Entry] = {
    "sign_flip": Entry(lambda x: Attack(own=partial(flip_sign, x)), float, 1.0),
    "noise": Entry(lambda x: Attack(own=partial(send_noise, x)), float, 10.0),
    "nan": Entry(lambda: Attack(own=partial(send_value, np.nan))),
    "inf": Entry(lambda: Attack(own=partial(send_value, np.inf))),
    "silent": Entry(lambda: Attack(own=partial(send_value, 0.0))),
    "late": Entry(lambda k: Attack(lag=k), int, 10, 1),
    "copy": Entry(lambda: Attack(forge=copy)),
    "mimic": Entry(lambda k: Attack(forge=partial(mimic, k)), int, 0),
    "ipm": Entry(lambda x: Attack(forge=partial(inner_product, x)), float, 0.1),
    "alie": Entry(lambda x: Attack(forge=partial(a_little_is_enough, x)), float),
    "optimal_ipm": Entry(lambda: Attack(forge=optimal_inner_product)),
    "optimal_alie": Entry(lambda: Attack(forge=optimal_alie)),
    LABEL_FLIP: Entry(Attack),
}


def byzantine(text: str, attackers: int) -> Byzantine:
    """Return the attack that a text names, by so many workers.

    Args:
      text: NAME or NAME:ARGUMENT, with a name of ATTACKS.
      attackers: Number of attackers.
    """
    name, colon, value = text.partition(":")
    if name not in ATTACKS:
        raise BadInput(
            f"expected an attack of {', '.join(ATTACKS)}, got {text!r}; correct it"
        )
    make, kind, default, least = ATTACKS[name]
    if kind is None:
        if colon:
            raise BadInput(
                f"expected {name} without an argument, got {text!r}; correct it"
            )
        return Byzantine(make(), attackers)
    argument = default
    if colon:
        argument = read_argument(name, kind, value, least)
    return Byzantine(make(argument), attackers)


MOST = 1e6  # largest argument of an attack


def read_argument(
    name: str, kind: Callable[[str], float], value: str, least: float
) -> float:
    """Return the argument of an attack; raise BadInput if it is not in its range."""
    try:
        argument = kind(value)
    except ValueError:
        argument = np.nan
    if not least <= argument <= MOST:
        raise BadInput(
            f"expected {name}:<number from {least:g} to {MOST:g}>, got "
            f"{name}:{value}; correct it"
        )
    return argument
