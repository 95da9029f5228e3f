"""Claims of Goyal et al., 2017, and of AlexNet, judged by a run of large_batch.py.

A row has larger errors than another if the exact permutation test over pairs of equal
seeds has p of 5 % at most. (Two standard errors of the pairs assume normal errors; for
5 seeds they have p of 6 %.)
"""

import math
from collections.abc import Mapping
from itertools import product

from lab.claims import Verdict, claim, nonempty, untested, verdict
import numpy as np

from dml.runs.results import Run

BASELINE = "baseline"
SCALED = (BASELINE, "gradual")  # rows with scaled rate and gradual warm-up
SIGNIFICANCE = 0.05  # significance level of the permutation test
MIN_SEEDS = 5  # fewest seeds whose p can be at most SIGNIFICANCE: p of 1/32
ACCURACY_TOLERANCE = 0.01  # decrease of accuracy that counts as none
MIN_WORKERS = 4  # least number of workers up to which accuracy has to hold
STEEP_POWER, FLAT_POWER = 0.75, 0.5  # exponents of steps ~ k^-power


def p_value(errors: np.ndarray, reference: np.ndarray) -> float:
    """Return the share of permutations whose mean difference is at least as large."""
    apart = np.asarray(errors) - np.asarray(reference)
    signs = np.array(list(product((1, -1), repeat=len(apart))))
    return float((signs @ apart >= apart.sum() - 1e-9).mean())


def worse(errors: np.ndarray, reference: np.ndarray) -> bool:
    """Return whether errors are larger than the reference's by the exact test."""
    return p_value(errors, reference) <= SIGNIFICANCE


def accuracy_lost(errors: np.ndarray, reference: np.ndarray) -> bool:
    """Return whether errors are worse, or larger by over a point on average."""
    return (
        worse(errors, reference)
        or float(np.mean(errors) - np.mean(reference)) > ACCURACY_TOLERANCE
    )


def by_warmup(run: Run) -> dict[str, np.ndarray]:
    """Return the errors of all seeds by warm-up, for 1 and for --large workers."""
    workers = (1, run.flags["large"])
    rows = [row for row in run.rows if row["workers"] in workers]
    return {row["warmup"]: np.array(row["errors"]) for row in rows}


def all_worse(
    errors: Mapping[str, np.ndarray], pairs: list[tuple[str, str]]
) -> Verdict:
    """Judge whether the first of each pair of warm-ups has larger errors."""
    if min(len(errors[name]) for pair in pairs for name in pair) < MIN_SEEDS:
        return untested(f"fewer than {MIN_SEEDS} seeds")
    texts, holds = [], []
    for serial, other in pairs:
        apart, p = (
            errors[serial] - errors[other],
            p_value(errors[serial], errors[other]),
        )
        holds.append(worse(errors[serial], errors[other]))
        texts.append(f"{serial} - {other} {apart.mean():+.2%} (p = {p:.3f})")
    return verdict(
        all(holds), ", ".join(texts), f"required p of {SIGNIFICANCE:g} at most"
    )


@claim(
    "accuracy is constant up to a batch size, then falls",
    "AlexNet 58.42, 59.19, 59.00, 58.88, 57.97, 55.90 %",
)
def holds_then_falls(run: Run) -> Verdict:
    """Accuracy holds up to 4 workers or more, and is lost with all larger numbers.

    All rows have gradual warm-up. Accuracy is lost if the errors are larger than those
    of one worker by the exact test over seeds (p of 5 %), or if the mean is larger by
    over a percentage point.
    """
    rows = [row for row in run.rows if row["warmup"] in SCALED]
    errors = {row["workers"]: np.array(row["errors"]) for row in rows}
    serial, *factors = sorted(nonempty(errors, "gradual"))
    good = [not accuracy_lost(errors[factor], errors[serial]) for factor in factors]
    good_count = good.index(False) if False in good else len(good)
    last = [serial, *factors][good_count]
    holds = (
        last >= MIN_WORKERS and good_count < len(good) and not any(good[good_count:])
    )
    measured = ", ".join(f"x{k} {1 - errors[k].mean():.1%}" for k in (serial, *factors))
    return verdict(holds, measured, f"as good up to x{last}")


@claim("gradual warm-up has the error of one worker", "23.74, 23.60 %")
def as_one(run: Run) -> Verdict:
    """Gradual warm-up does not have larger errors than the baseline.

    The errors are larger by the exact test over seeds (p of 5 %), or if their mean is
    larger by over a percentage point.
    """
    errors = by_warmup(run)
    serial, many = errors[BASELINE], errors["gradual"]
    measured = f"{many.mean():.2%}, baseline {serial.mean():.2%}"
    return verdict(
        not accuracy_lost(many, serial), measured, "k times the batch and the rate"
    )


@claim("an unscaled rate is the worst", "41.67 %")
def unscaled(run: Run) -> Verdict:
    """Unscaled has larger errors than all other rows, by the exact test over seeds."""
    others = (BASELINE, "gradual", "none", "constant")
    return all_worse(by_warmup(run), [("unscaled", other) for other in others])


@claim("other warm-ups are worse", "none 24.84, constant 25.88 %")
def gradual(run: Run) -> Verdict:
    """None and constant have larger errors than gradual, by the test over seeds."""
    return all_worse(by_warmup(run), [("none", "gradual"), ("constant", "gradual")])


@claim("steps fall as 1/k with k workers, and then more slowly", "a bound of the batch")
def steps(run: Run) -> Verdict:
    """Steps to the target fall as k^-0.75 or faster, and later as k^-0.5 or slower.

    For each k the fastest warm-up counts. The largest k may miss the target instead.
    """
    steps_by_workers: dict[int, float] = {}
    for row in run.rows:
        if row["steps_to_target"] is not None:
            steps_by_workers.setdefault(row["workers"], math.inf)
            steps_by_workers[row["workers"]] = min(
                steps_by_workers[row["workers"]], row["steps_to_target"]
            )
    factors = sorted(steps_by_workers)
    if len(factors) < 2:
        return untested("too few rows reach the target")

    def power(low: int, high: int) -> float:
        return math.log(steps_by_workers[high] / steps_by_workers[low]) / math.log(
            high / low
        )

    first, last = power(*factors[:2]), power(*factors[-2:])
    measured = f"steps fall as k^{first:.2f} at first, k^{last:.2f} to x{factors[-1]}"
    missed = max(row["workers"] for row in run.rows) > factors[-1]
    if missed:
        measured = f"{measured}, then miss the target"
    holds = first <= -STEEP_POWER and (missed or last >= -FLAT_POWER)
    return verdict(holds, measured, f"required k^-{STEEP_POWER} and k^-{FLAT_POWER}")


PAPER = (holds_then_falls, as_one, unscaled, gradual)
CLAIMS = (*PAPER, steps)
