"""Expected time of a run with checkpoints and failures, and the best interval.

    work τ      checkpoint δ   work       failure: the work since the checkpoint is lost
    ├──────────────┼───┤       ├────────╳┄┄┄┄┄┄┄┄┄┤
                                         restart R  ├──────────────┼───┤

Times between failures are exponential with mean M, also during checkpoints and
restarts. Young 1974, A first order approximation to the optimum checkpoint interval;
Daly 2006, A higher order estimate of the optimum checkpoint interval. Pure arithmetic.
"""

import math
from typing import NamedTuple

from dml.types import BadInput


class Failures(NamedTuple):
    """Costs of checkpoints and failures, in seconds.

    Attributes:
      checkpoint: Duration of a checkpoint, δ.
      restart: Time from a failure until work continues, R.
      mean: Mean time between failures, M.
    """

    checkpoint: float
    restart: float
    mean: float


def check_failures(failures: Failures) -> Failures:
    """Return the costs; raise BadInput if one is out of range."""
    if not (failures.checkpoint > 0 and failures.restart >= 0 and failures.mean > 0):
        raise BadInput(
            f"expected a checkpoint and a mean above 0 s and a restart of at least "
            f"0 s, got {failures}; correct them"
        )
    return failures


def expected_seconds(failures: Failures, interval: float, work: float) -> float:
    """Return the exact mean time of a run: M e^(R/M) (e^((τ+δ)/M) - 1) W/τ.

    Args:
      failures: Costs of checkpoints and failures.
      interval: Work between checkpoints, τ.
      work: Time of the run without checkpoints and failures, W.
    """
    checkpoint, restart, mean = failures
    segment = (
        mean * math.exp(restart / mean) * math.expm1((interval + checkpoint) / mean)
    )
    return segment * work / interval


def young(failures: Failures) -> float:
    """Return Young's interval √(2δM), the first order of the best interval."""
    return math.sqrt(2 * failures.checkpoint * failures.mean)


def daly(failures: Failures) -> float:
    """Return Daly's interval √(2δM) (1 + √(δ/2M)/3 + δ/18M) - δ; M if δ ≥ 2M."""
    checkpoint, _, mean = failures
    if checkpoint >= 2 * mean:
        return mean
    ratio = checkpoint / (2 * mean)
    return young(failures) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - checkpoint


def best(failures: Failures) -> float:
    """Return the interval with the least expected time: M (1 + W(-e^(-δ/M - 1))).

    The derivative of the expected time is 0 where u e^u = -e^(-δ/M - 1), u = τ/M - 1.
    W is the principal branch of Lambert's function. It is computed by Newton's method
    on τ, which also converges where u is close to -1, as for rare failures.
    """
    checkpoint, _, mean = failures
    share = checkpoint / mean
    x = daly(failures) / mean  # τ/M
    for _ in range(50):
        # Newton's step for x - 1 + e^(-x - δ/M) = 0
        step = -x / math.expm1(-x - share) - 1
        x -= step
        if abs(step) <= 1e-15 * x:
            break
    return mean * x


INTERVALS = {"Young": young, "Daly": daly, "exact": best}
