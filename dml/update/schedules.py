"""Learning rates by step, from optax, after a warm-up.

    peak ┤     ╭──╮            gradual warm-up (Goyal 2017, section 2.2) from start to
         │   ╱      ╲          peak, then one of SCHEDULES for the remaining steps
   start ┤ ╱          ╲___

Steps count from 0, the first update. Momentum need not be corrected when the rate
changes (Goyal 2017, section 3), because all optimizers except lars multiply the
momentum by the rate.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import optax

from dml.types import BadInput

Schedule: TypeAlias = Callable[[Any], Any]

DROPS = (1 / 3, 2 / 3, 8 / 9)  # of all steps: epochs 30, 60 and 80 of 90 in Goyal 2017
DROP = 0.1  # factor of the rate at each of DROPS
POWER = 2.0  # of `poly`, You 2017


def polynomial(peak: float, steps: int, warmup_steps: int, power: float) -> Schedule:
    """Decrease to 0 as a power of the remaining share of steps."""
    return optax.polynomial_schedule(peak, 0.0, power, steps - warmup_steps)


def cosine(peak: float, steps: int, warmup_steps: int) -> Schedule:
    """Decrease to 0 along half a cosine (Loshchilov 2017)."""
    return optax.cosine_decay_schedule(peak, max(1, steps - warmup_steps))


def step_decay(peak: float, steps: int, warmup_steps: int) -> Schedule:
    """Multiply by DROP after the shares DROPS of all steps, including the warm-up."""
    drops = {round(part * steps) - warmup_steps: DROP for part in DROPS}
    return optax.piecewise_constant_schedule(peak, drops)


# (peak, number of all steps, number of warm-up steps) -> rates after the warm-up
SCHEDULES: dict[str, Callable[[float, int, int], Schedule]] = {
    "constant": lambda peak, steps, warmup_steps: optax.constant_schedule(peak),
    "cosine": cosine,
    "linear": partial(polynomial, power=1.0),
    "poly": partial(polynomial, power=POWER),
    "steps": step_decay,
}

# (start, peak, number of warm-up steps) -> rates during the warm-up
WARMUPS: dict[str, Callable[[float, float, int], Schedule] | None] = {
    "none": None,
    "constant": lambda start, peak, warmup_steps: optax.constant_schedule(start),
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
      peak: Rate after the warm-up.
      steps: Number of all steps.
      warmup_steps: Number of steps of warm-up; ignored if warmup is "none".
      warmup: Key of WARMUPS; the rate of a constant warm-up is `start`.
      start: First rate of the warm-up; ignored if warmup is "none".
    """
    for flag, key, table in (
        ("schedule", name, SCHEDULES),
        ("warmup", warmup, WARMUPS),
    ):
        if key not in table:
            raise BadInput(
                f"expected a {flag} of {', '.join(table)}, got {key!r}; "
                f"pass --{flag}=<one of them>"
            )
    warmup_schedule = WARMUPS[warmup]
    if warmup_schedule is None:
        warmup_steps = 0
    if not 0 <= warmup_steps <= steps:
        raise BadInput(
            f"expected from 0 to {steps=} steps of warm-up, got {warmup_steps}; "
            "pass --warmup_steps=<fewer>"
        )
    main = SCHEDULES[name](peak, steps, warmup_steps)
    if warmup_schedule is None or warmup_steps == 0:
        return main
    first = warmup_schedule(start, peak, warmup_steps)
    return optax.join_schedules([first, main], [warmup_steps])


def linear_scaling(learning_rate: float, batch: int, base: int) -> float:
    """Return the rate for a batch: proportional to its size (Goyal 2017).

    Args:
      learning_rate: Rate for a batch of size `base`.
      batch: Number of examples in the batch.
      base: Number of examples for which learning_rate was chosen.
    """
    return learning_rate * batch / base
