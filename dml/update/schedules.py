"""Learning rates by step, from optax, after a warm-up.

    peak ┤     ╭──╮            gradual warm-up (Goyal 2017, section 2.2) from start to
         │   ╱      ╲          peak, then one of SCHEDULES for the remaining steps
   start ┤ ╱          ╲___

Steps count from 0, the first update. Momentum needs no correction (Goyal 2017, section
3) if the rate multiplies the momentum, as in all rules but lars.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import optax

from dml.types import BadInput

Schedule: TypeAlias = Callable[[Any], Any]

DROPS = (1 / 3, 2 / 3, 8 / 9)  # of all steps: epochs 30, 60 and 80 of 90 in Goyal 2017
DROP = 0.1
POWER = 2.0  # of `poly`, You 2017


def falling(peak: float, steps: int, warm: int, power: float) -> Schedule:
    """Decrease to 0 with this power of the remaining share of steps."""
    return optax.polynomial_schedule(peak, 0.0, power, steps - warm)


def cosine(peak: float, steps: int, warm: int) -> Schedule:
    """Decrease to 0 along half a cosine (Loshchilov 2017)."""
    return optax.cosine_decay_schedule(peak, max(1, steps - warm))


def dropping(peak: float, steps: int, warm: int) -> Schedule:
    """Divide by 10 after the shares DROPS of all steps, warm-up included."""
    drops = {round(part * steps) - warm: DROP for part in DROPS}
    return optax.piecewise_constant_schedule(peak, drops)


# peak, steps, warm-up steps among them -> rates after the warm-up, from peak
SCHEDULES: dict[str, Callable[[float, int, int], Schedule]] = {
    "constant": lambda peak, steps, warm: optax.constant_schedule(peak),
    "cosine": cosine,
    "linear": partial(falling, power=1.0),
    "poly": partial(falling, power=POWER),
    "steps": dropping,
}

# start, peak, warm-up steps -> rates during the warm-up
WARMUPS: dict[str, Callable[[float, float, int], Schedule] | None] = {
    "none": None,
    "constant": lambda start, peak, warm: optax.constant_schedule(start),
    "gradual": optax.linear_schedule,
}


def schedule(
    name: str,
    peak: float,
    steps: int,
    warmup_steps: int = 0,
    warmup: str = "gradual",
    start: float = 0.0,
) -> Schedule:
    """Return the learning rate by step: a warm-up from start to peak, then a schedule.

    Args:
      name: Key of SCHEDULES.
      peak: Greatest rate.
      steps: Number of all steps.
      warmup_steps: Number of steps of warm-up; ignored if warmup is "none".
      warmup: Key of WARMUPS; a constant warm-up stays at start.
      start: First rate of the warm-up; ignored if warmup is "none".
    """
    for kind, key, table in (
        ("schedule", name, SCHEDULES),
        ("warmup", warmup, WARMUPS),
    ):
        if key not in table:
            raise BadInput(
                f"expected a {kind} of {', '.join(table)}, got {key!r}; "
                f"pass --{kind}=<one of them>"
            )
    warming = WARMUPS[warmup]
    warm = warmup_steps if warming else 0
    if not 0 <= warm <= steps:
        raise BadInput(
            f"expected from 0 to {steps=} steps of warm-up, got {warm}; "
            "pass --warmup_steps=<fewer>"
        )
    after = SCHEDULES[name](peak, steps, warm)
    if not (warming and warm):
        return after
    return optax.join_schedules([warming(start, peak, warm), after], [warm])


def linear_scaling(learning_rate: float, batch: int, base: int) -> float:
    """Return the rate for a batch k times as large as the base: k times the rate."""
    return learning_rate * batch / base
