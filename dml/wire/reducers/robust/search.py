"""Searches for the factor of an attack that moves an estimate farthest.

The deviation of an estimate as a function of the factor is not smooth: a rule such as
Krum accepts the attackers' vector below a threshold, and rejects it above.
"""

import math
from collections.abc import Callable

Deviation = Callable[[float], float]  # factor, at least 0 -> deviation of the estimate

TRIALS = 20  # calls of the deviation
FIRST = 10.0  # the first factor above 0
HALVES = 5  # scales below FIRST
SHRINK = 0.55  # of the steps of a refinement


def farthest(deviation: Deviation) -> float:
    """Return the factor with the largest deviation that TRIALS calls find.

    0, then 10, 20, 40, ... while the deviation grows, then 5, 2.5, ..., 10/32: one of
    them is near the best factor at any scale. Shrinking steps in both directions
    then refine the best one.
    """
    tried = {0.0: value_of(deviation, 0.0)}

    def improves(factor: float) -> bool:
        if factor < 0 or factor in tried or len(tried) == TRIALS:
            return False
        before = max(tried.values())
        tried[factor] = value_of(deviation, factor)
        return tried[factor] > before

    factor = FIRST
    while len(tried) < TRIALS - HALVES and improves(factor):
        factor *= 2
    for halvings in range(1, HALVES + 1):
        improves(FIRST / 2**halvings)
    best = max(tried, key=lambda factor: tried[factor])
    step = (best or FIRST / 2**HALVES) / 2
    while len(tried) < TRIALS:
        for candidate in (best + step, best - step):
            if improves(candidate):
                best = candidate
                break
        step *= SHRINK
    return best


def line_search(deviation: Deviation, ratio: float) -> float:
    """Return the factor that the line search of ByzFL finds by TRIALS calls.

    Steps upwards from 0 are doubled, beginning with 10, while the deviation grows. Then
    they shrink by a ratio. A best factor below the scale of the last increase is
    missed, which `farthest` finds.

    Args:
      deviation: Called with increasing or shrinking factors.
      ratio: Ratio of steps, between 0 and 1; ByzFL has 0.8.
    """
    best, largest, step = 0.0, value_of(deviation, 0.0), FIRST
    growing = True
    for _ in range(TRIALS - 1):
        value = value_of(deviation, best + step)
        if value > largest:
            best, largest = best + step, value
        else:
            growing = False
        step *= 2 if growing else ratio
    return best


def value_of(deviation: Deviation, factor: float) -> float:
    """Return a deviation; one that is not a number is the smallest."""
    value = deviation(factor)
    return -math.inf if math.isnan(value) else value
