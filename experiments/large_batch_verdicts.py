"""Errors and times of rows in; what they say of the published claims out.

A row is worse than another where its errors are, seed by seed, by an exact test.
"""

import math
from collections.abc import Mapping
from itertools import product

import numpy as np

BASELINE = "baseline"
CHANCE = 0.05  # that a row which is no worse is called so
POINT = 0.01  # of the error: what may be lost where accuracy holds
ORDER = ("gradual", "none", "constant", "unscaled")  # of Goyal's errors
NEAR, FLAT = 0.75, 0.5  # steps fall as k^-1 on a doubling: nearly, or hardly
HOLDS, PART, UNSEEN = "holds", "holds in part", "not seen"


def worse(errors: np.ndarray, than: np.ndarray) -> bool:
    """Say whether errors are larger, by the exact test that swaps pairs of seeds.

    Of 5 seeds all must be worse: that has a chance of 1 in 32. Fewer prove nothing.
    """
    apart = np.asarray(errors) - np.asarray(than)
    signs = np.array(list(product((1, -1), repeat=len(apart))))
    as_large = signs @ apart >= apart.sum() - 1e-9
    return bool(apart.sum() > 0 and as_large.mean() <= CHANCE)


def lost(errors: np.ndarray, than: np.ndarray) -> bool:
    """Say whether errors are worse, or larger by a point on the mean, if by luck."""
    return worse(errors, than) or float(np.mean(errors) - np.mean(than)) > POINT


def warmups(errors: Mapping[str, np.ndarray]) -> tuple[str, str]:
    """Judge Goyal's order of rows: gradual as the baseline, none other, unscaled last.

    Return the verdict, and what was found.
    """
    gradual, unscaled = errors["gradual"], errors["unscaled"]
    held = not lost(gradual, errors[BASELINE])
    others = [way for way in ("none", "constant") if worse(errors[way], gradual)]
    means = [float(np.mean(errors[way])) for way in ORDER]
    ordered = means == sorted(means)  # proves nothing, but is what one would look at
    last = all(worse(unscaled, errors[way]) for way in errors if way != "unscaled")
    found = [
        f"gradual is {'as good as' if held else 'worse than'} the baseline",
        f"worse than gradual: {' and '.join(others) or 'neither none nor constant'}",
        f"unscaled is {'' if last else 'not '}the worst",
        f"means are in {'the published' if ordered else 'another'} order",
    ]
    parts = held + len(others) + last
    said = HOLDS if parts == 4 else PART if held and parts > 1 else UNSEEN
    return said, "; ".join(found)


def limit(errors: Mapping[int, np.ndarray]) -> tuple[str, str]:
    """Judge whether errors by workers hold until some number, and then rise."""
    one, *others = sorted(errors)
    bad = [factor for factor in others if lost(errors[factor], errors[one])]
    held = [factor for factor in others if factor < min(bad, default=math.inf)]
    if not bad:
        return UNSEEN, f"no accuracy is lost up to x{others[-1]}"
    if not held:
        return UNSEEN, f"accuracy is lost from x{bad[0]} on, the first"
    found = f"accuracy holds to x{held[-1]}, then falls"
    lasts = len(held) + len(bad) == len(others)
    return (HOLDS, found) if lasts else (PART, f"{found}, not at all of x{others}")


def bounded(steps: Mapping[int, float | None]) -> tuple[str, str]:
    """Judge whether steps to the target first fall as 1/k, and at the end hardly."""
    factors = [factor for factor in sorted(steps) if steps[factor] is not None]
    missed = [factor for factor in sorted(steps) if steps[factor] is None]
    if len(factors) < 2:
        return UNSEEN, "too few rows reach the target"

    def power(low: int, high: int) -> float:
        return math.log(steps[high] / steps[low]) / math.log(high / low)

    first, last = power(*factors[:2]), power(*factors[-2:])
    found = f"steps fall as k^{first:.2f} at first, k^{last:.2f} to x{factors[-1]}"
    flat = last >= -FLAT
    if missed and missed[-1] > factors[-1]:
        found, flat = f"{found}, then miss the target", True
    return {2: HOLDS, 1: PART, 0: UNSEEN}[(first <= -NEAR) + flat], found


def critical(epochs: Mapping[int, float | None]) -> float | None:
    """Return the batch that doubles the epochs to the target (McCandlish 2018, 2.11).

    By E = E_min (1 + B / B_crit), fitted by relative error: a line over the batch.
    """
    seen = {batch: one for batch, one in epochs.items() if one is not None}
    if len(seen) < 2:
        return None
    batches, needed = np.array(list(seen)), np.array(list(seen.values()))
    slope, start = np.polyfit(batches, needed, 1, w=1 / needed)
    # a slope that is only rounding is none
    return float(start / slope) if slope > 1e-9 * start > 0 else None
