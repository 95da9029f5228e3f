"""The rows, tables and summary of large_batch.py, beside the published tables."""

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from large_batch_claims import BASELINE, SCALED
from large_batch_training import Plan, Ran

from dml.metrics.writers import Columns, Row, printer
from dml.wire import cost

GOYAL = {  # errors in % at 8192 images, of the baseline at 256
    BASELINE: "23.60 ± 0.12",
    "unscaled": "41.67",
    "none": "24.84",
    "constant": "25.88",
    "gradual": "23.74 ± 0.09",
}
ALEXNET = {256: 58.42, 512: 59.19, 1024: 59.00, 2048: 58.88, 4096: 57.97, 8192: 55.90}
ALLREDUCES = ("tree", "butterfly", "halving_doubling", "ring")
FABRIC = cost.Rates(1e-6, 1e-9, 1e-10)  # of the virtual ranks' default network


class Case(NamedTuple):
    """One row: so many workers, one warm-up, all seeds."""

    factor: int
    way: str
    plan: Plan
    rate: float
    target: float
    runs: Sequence[Ran]
    noise: Sequence[float] = ()  # scale up to each snapshot: the baseline's first seed

    @property
    def batch(self) -> int:
        return self.factor * self.plan.base

    @property
    def errors(self) -> np.ndarray:
        return np.array([1 - float(run.accuracies[-1]) for run in self.runs])

    @property
    def loss(self) -> float:
        return float(np.mean([run.losses[-1] for run in self.runs]))

    @property
    def reached(self) -> list[int | None]:
        """Return of each seed after how many snapshots the target was reached."""
        first = [np.flatnonzero(run.accuracies >= self.target) for run in self.runs]
        return [int(at[0]) + 1 if len(at) else None for at in first]

    @property
    def epochs(self) -> float | None:
        """Return the mean epochs to the target; None where one seed missed it."""
        seen = [at for at in self.reached if at]
        if len(seen) < len(self.runs):
            return None
        return float(np.mean(seen)) * self.plan.between / self.plan.count

    @property
    def steps(self) -> float | None:
        epochs = self.epochs
        return None if epochs is None else epochs * self.plan.count / self.batch

    @property
    def step_seconds(self) -> float:
        took = [run.seconds for run in self.runs]
        return float(np.median(took)) / self.plan.steps(self.factor)

    @property
    def seconds(self) -> float | None:
        steps = self.steps
        return None if steps is None else steps * self.step_seconds


def finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def until_target(case: Case) -> float | None:
    """Return the noise scale when the target was reached; at the end if it was not."""
    return finite(case.noise[(case.reached[0] or 0) - 1])


COLUMNS = {
    "warm-up": (8, "{warmup}"),
    "workers": (7, "{workers:d}"),
    "batch": (5, "{batch:d}"),
    "rate": (6, "{rate:.4g}"),
    "steps": (6, "{steps:,d}"),
    "error %": (14, lambda row: spread(row["errors"])),
    "loss": (8, "{loss:.4f}"),
    "at target": (9, lambda row: f"{row['reached']} of {len(row['errors'])}"),
    "epochs to": (9, "{epochs_to_target:.2f}"),
    "steps to": (8, "{steps_to_target:,.0f}"),
    "seconds to": (10, "{seconds_to_target:.3f}"),
}


def row(case: Case) -> Row:
    """Return what the table says of a case."""
    return {
        "warmup": case.way,
        "workers": case.factor,
        "batch": case.batch,
        "rate": case.rate,
        "steps": case.plan.steps(case.factor),
        "errors": case.errors.tolist(),
        "error": float(case.errors.mean()),
        "loss": finite(case.loss),
        "reached": sum(at is not None for at in case.reached),
        "epochs_to_target": case.epochs,
        "steps_to_target": case.steps,
        "seconds_to_target": case.seconds,
        "step_seconds": case.step_seconds,
    }


def spread(errors: Sequence[float] | np.ndarray) -> str:
    """Return mean and standard deviation, in %."""
    several = 100 * np.asarray(errors)
    deviation = several.std(ddof=1) if len(several) > 1 else 0.0
    return f"{several.mean():.2f} ± {deviation:.2f}"


def fastest(cases: Sequence[Case]) -> dict[int, Case]:
    """Return by workers the warm-up with the fewest steps to the target."""

    def order(case: Case) -> float:
        return math.inf if case.steps is None else case.steps

    ranked = sorted(cases, key=order, reverse=True)
    found = {case.factor: case for case in ranked}
    return dict(sorted(found.items()))


def parallel(cases: Mapping[int, Case]) -> dict[int, float | None]:
    """Predict seconds to the target where each worker has a processor of its own."""
    found: dict[int, float | None] = {}
    gradient = cases[1].step_seconds  # of one worker's images
    for factor, case in cases.items():
        job = cost.Job(factor, case.plan.parameters)
        name = cost.choose(job, FABRIC, ALLREDUCES)
        wire = cost.seconds(name, job, FABRIC)
        found[factor] = None if case.steps is None else case.steps * (gradient + wire)
    return found


def critical(epochs: Mapping[int, float | None]) -> float | None:
    """Return the batch that doubles the epochs to the target (McCandlish 2018, 2.11).

    By E = E_min (1 + B / B_crit), fitted by relative error: a line over the batch.
    """
    known = {batch: one for batch, one in epochs.items() if one is not None}
    if len(known) < 2:
        return None
    batches, needed = np.array(list(known)), np.array(list(known.values()))
    slope, start = np.polyfit(batches, needed, 1, w=1 / needed)
    # a slope within rounding of 0 is no slope
    return float(start / slope) if slope > 1e-9 * start > 0 else None


def summed(cases: Sequence[Case], large: int) -> dict[str, Any]:
    """Return the flat summary."""
    at = {case.way: case for case in cases if case.factor in (1, large)}
    scaled = {case.factor: case for case in cases if case.way in SCALED}
    quick, best = fastest(cases), at["gradual"]
    times = parallel(quick)
    summary: dict[str, Any] = {
        "loss": finite(best.loss),
        "accuracy": 1 - float(best.errors.mean()),
        "steps": best.plan.steps(large),
        "batch_limit": critical({case.batch: case.epochs for case in quick.values()}),
        "noise_scale": until_target(at[BASELINE]),
        "noise_scale_at_end": finite(at[BASELINE].noise[-1]),
    }
    for way, case in at.items():
        summary[f"{way}_error"] = float(case.errors.mean())
    for factor, case in scaled.items():
        summary[f"x{factor}_accuracy"] = 1 - float(case.errors.mean())
    for factor, case in quick.items():
        summary[f"x{factor}_warmup"] = case.way
        summary[f"x{factor}_epochs_to_target"] = case.epochs
        summary[f"x{factor}_steps_to_target"] = case.steps
        summary[f"x{factor}_seconds_to_target"] = case.seconds
        summary[f"x{factor}_parallel_seconds_to_target"] = times[factor]
    return summary


PUBLISHED: dict[str, Columns] = {
    "warmups": {
        "warm-up": (8, "{way}"),
        "Goyal": (12, "{published}"),
        "ours": (12, "{ours}"),
    },
    "batches": {
        "batch": (5, "{images}"),
        "AlexNet": (7, "{published:.2f}"),
        "our batch": (9, "{batch}"),
        "ours": (12, "{ours}"),
    },
    "steps": {
        "workers": (7, "{workers}"),
        "batch": (5, "{batch}"),
        "warm-up": (8, "{way}"),
        "epochs": (6, "{epochs:.2f}"),
        "steps": (6, "{steps:.1f}"),
        "seconds": (8, "{seconds:.4f}"),
        "in steps": (8, "{in_steps:.2f}"),
        "predicted": (9, "{predicted:.2f}"),
        "measured": (8, "{measured:.2f}"),
    },
}


def said(cases: Sequence[Case], large: int, summary: Row) -> None:
    """Print three tables, each with published numbers, and the bounds."""
    ways = {case.way: case for case in cases if case.factor in (1, large)}
    scaled = [case for case in cases if case.way in SCALED]
    batch, target = ways["gradual"].batch, cases[0].target
    titles = {
        "warmups": f"warm-ups: error in %, Goyal 2017 at 8192 images, ours at {batch}",
        "batches": "batches: top-1 in %, AlexNet, and ours with gradual warm-up",
        "steps": f"time to {target:.1%} by the fastest warm-up (-: missed by a seed); "
        "speed-up: in steps, of k processors (predicted), of this one (measured)",
    }
    rows: dict[str, list[Row]] = {
        "warmups": [
            {"way": way, "published": error, "ours": spread(ways[way].errors)}
            for way, error in GOYAL.items()
        ],
        "batches": [
            {
                "images": min(ALEXNET) * case.factor,
                "published": ALEXNET.get(min(ALEXNET) * case.factor),
                "batch": case.batch,
                "ours": spread(1 - case.errors),
            }
            for case in scaled
        ],
        "steps": timed(cases),
    }
    for name, columns in PUBLISHED.items():
        show = printer(columns, titles[name])
        for row in rows[name]:
            show(row)
    sys.stdout.write(bounds(summary) + "\n")


def timed(cases: Sequence[Case]) -> list[Row]:
    """Return the time to the target and the speed-ups, by workers."""
    quick = fastest(cases)
    times, one = parallel(quick), quick[1]
    return [
        {
            "workers": factor,
            "batch": case.batch,
            "way": case.way,
            "epochs": case.epochs,
            "steps": case.steps,
            "seconds": case.seconds,
            "in_steps": gain(one.steps, case.steps),
            "predicted": gain(times[1], times[factor]),
            "measured": gain(one.seconds, case.seconds),
        }
        for factor, case in quick.items()
    ]


def gain(serial: float | None, parallel: float | None) -> float | None:
    return None if serial is None or parallel is None else serial / parallel


def bounds(summary: Row) -> str:
    found, *noises = (
        "none seen" if summary[name] is None else f"{summary[name]:.0f}"
        for name in ("batch_limit", "noise_scale", "noise_scale_at_end")
    )
    return (
        f"batch that doubles the epochs: {found}; gradient noise scale: "
        f"{noises[0]} when the target was reached, {noises[1]} at the end"
    )
