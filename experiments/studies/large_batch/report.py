"""Rows, summary and printed tables of large_batch.py, with published numbers."""

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dml.runs.results import Run
from dml.runs.writers import Columns, Row, printer
from dml.wire.costs import allreduce as cost
from studies.large_batch.claims import BASELINE, SCALED
from studies.large_batch.training import LargeBatchPlan, Result

GOYAL = {  # errors in % at 8192 images; the baseline has 256
    BASELINE: "23.60 ± 0.12",
    "unscaled": "41.67",
    "none": "24.84",
    "constant": "25.88",
    "gradual": "23.74 ± 0.09",
}
ALEXNET = {256: 58.42, 512: 59.19, 1024: 59.00, 2048: 58.88, 4096: 57.97, 8192: 55.90}
ALLREDUCES = ("tree", "butterfly", "halving_doubling", "ring")
FABRIC = cost.Rates(1e-6, 1e-9, 1e-10)  # default network of virtual ranks

COLUMNS = {
    "warm-up": (8, "{warmup}"),
    "workers": (7, "{workers:d}"),
    "batch": (5, "{batch:d}"),
    "error %": (14, lambda row: mean_and_deviation(row["errors"])),
    "loss": (8, "{loss:.4f}"),
    "at target": (9, lambda row: f"{row['reached']} of {len(row['errors'])}"),
    "epochs to": (9, "{epochs_to_target:.2f}"),
    "rate": (6, "{rate:.4g}"),
    "steps": (6, "{steps:,d}"),
    "steps to": (8, "{steps_to_target:,.0f}"),
    "seconds to": (10, "{seconds_to_target:.3f}"),
}
WARMUPS: Columns = {
    "warm-up": (8, "{warmup}"),
    "Goyal": (12, "{published}"),
    "ours": (12, "{ours}"),
}
BATCHES: Columns = {
    "batch": (5, "{images}"),
    "AlexNet": (7, "{published:.2f}"),
    "our batch": (9, "{batch}"),
    "ours": (12, "{ours}"),
}
TIMES: Columns = {
    "workers": (7, "{workers}"),
    "batch": (5, "{batch}"),
    "warm-up": (8, "{warmup}"),
    "epochs": (6, "{epochs_to_target:.2f}"),
    "steps": (6, "{steps_to_target:.1f}"),
    "seconds": (7, "{seconds_to_target:.4f}"),
    "in steps": (8, "{in_steps:.2f}"),
    "predicted": (9, "{predicted:.2f}"),
    "measured": (8, "{measured:.2f}"),
}


def row(
    plan: LargeBatchPlan,
    workers: int,
    warmup: str,
    rates: Any,
    target: float,
    runs: list[Result],
) -> dict[str, Any]:
    """Return the row of the trainings with all seeds.

    Steps and seconds to the target are None unless every training reaches it.

    Args:
        plan: plan of all trainings.
        workers: number of workers.
        warmup: name of the warm-up.
        rates: learning rates of all steps.
        target: target accuracy.
        runs: one training per seed.
    """
    batch, updates = workers * plan.base, plan.steps(workers)
    errors = np.array([1 - float(run.accuracies[-1]) for run in runs])
    known = [
        snapshots for run in runs if (snapshots := reached(run, target)) is not None
    ]
    step_seconds = float(np.median([run.seconds for run in runs])) / updates
    epochs = steps = None
    if len(known) == len(runs):
        epochs = float(np.mean(known)) * plan.between / plan.count
        steps = epochs * plan.count / batch
    return {
        "warmup": warmup,
        "workers": workers,
        "batch": batch,
        "rate": float(np.max(rates)),
        "steps": updates,
        "errors": errors.tolist(),
        "error": float(errors.mean()),
        "loss": finite(float(np.mean([run.losses[-1] for run in runs]))),
        "reached": len(known),
        "epochs_to_target": epochs,
        "steps_to_target": steps,
        "seconds_to_target": None if steps is None else steps * step_seconds,
        "step_seconds": step_seconds,
    }


def reached(run: Result, target: float) -> int | None:
    """Return the number of snapshots up to the target; None if it is not reached."""
    good = np.flatnonzero(run.accuracies >= target)
    return int(good[0]) + 1 if len(good) else None


def finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def mean_and_deviation(values: Sequence[float] | np.ndarray) -> str:
    """Return mean and standard deviation, in %."""
    percents = 100 * np.asarray(values)
    deviation = percents.std(ddof=1) if len(percents) > 1 else 0.0
    return f"{percents.mean():.2f} ± {deviation:.2f}"


def speed_ups(rows: Sequence[Row], parameters: int) -> list[Row]:
    """Return the rows with the fewest steps to the target, by workers.

    Adds speed-ups and `parallel_seconds_to_target`, predicted for one processor per
    worker and a model of `parameters` parameters.
    """

    def steps_to_target(row: Row) -> float:
        return row["steps_to_target"] or math.inf

    # order matters: the last of equal rows is taken
    slowest_first = sorted(rows, key=steps_to_target, reverse=True)
    fastest = {row["workers"]: row for row in slowest_first}
    key, timed = "parallel_seconds_to_target", []
    for workers, row in sorted(fastest.items()):
        job = cost.Job(workers, parameters)
        wire = cost.seconds(cost.choose(job, FABRIC, ALLREDUCES), job, FABRIC)
        steps = row["steps_to_target"]
        gradient = fastest[1]["step_seconds"]  # seconds of one worker's minibatch
        timed.append({**row, key: steps and steps * (gradient + wire)})
    serial = timed[0]
    gains = {
        "in_steps": "steps_to_target",
        "predicted": key,
        "measured": "seconds_to_target",
    }
    return [
        row | {name: gain(serial[key], row[key]) for name, key in gains.items()}
        for row in timed
    ]


def gain(serial: float | None, parallel: float | None) -> float | None:
    return None if serial is None or parallel is None else serial / parallel


def critical_batch(epochs: Mapping[int, float | None]) -> float | None:
    """Return the batch that doubles the epochs to the target (McCandlish 2018, 2.11).

    Fits E = E_min (1 + B / B_crit), a line over the batch size, by relative error.
    """
    known = {batch: count for batch, count in epochs.items() if count is not None}
    if len(known) < 2:
        return None
    batches, needed = np.array(list(known)), np.array(list(known.values()))
    slope, start = np.polyfit(batches, needed, 1, w=1 / needed)
    # a slope within rounding of 0 counts as 0
    return float(start / slope) if slope > 1e-9 * start > 0 else None


def summary(
    rows: Sequence[Row], times: Sequence[Row], large: int, noise: tuple[float, float]
) -> dict[str, Any]:
    """Return the flat summary.

    Args:
        rows: rows of all trainings.
        times: rows with speed-ups.
        large: number of workers of the comparison of warm-ups.
        noise: gradient noise scale at the target and at the end.
    """
    by_name = {row["warmup"]: row for row in rows if row["workers"] in (1, large)}
    limit = critical_batch({row["batch"]: row["epochs_to_target"] for row in times})
    totals: dict[str, Any] = {
        "loss": by_name["gradual"]["loss"],
        "accuracy": 1 - by_name["gradual"]["error"],
        "steps": by_name["gradual"]["steps"],
        "batch_limit": limit,
        "noise_scale": finite(noise[0]),
        "noise_scale_at_end": finite(noise[1]),
    }
    totals |= {f"{warmup}_error": row["error"] for warmup, row in by_name.items()}
    for row in rows:
        if row["warmup"] in SCALED:
            totals[f"x{row['workers']}_accuracy"] = 1 - row["error"]
    for row in times:
        kinds = ("epochs", "steps", "seconds", "parallel_seconds")
        for key in ("warmup", *(f"{kind}_to_target" for kind in kinds)):
            totals[f"x{row['workers']}_{key}"] = row[key]
    return totals


def conclude(run: Run) -> str:
    """Return the test errors of one worker and of each warm-up of most workers."""
    large = run.flags["large"]
    texts = [
        f"{row['warmup']} {row['error']:.1%}"
        for row in run.rows
        if row["workers"] in (1, large)
    ]
    return f"Test errors with {large} workers (baseline: one): {', '.join(texts)}."


def print_tables(
    rows: Sequence[Row], times: Sequence[Row], large: int, target: float, summary: Row
) -> None:
    """Print three tables, each with published numbers, and the bounds."""
    by_name = {row["warmup"]: row for row in rows if row["workers"] in (1, large)}
    batch, small = by_name["gradual"]["batch"], min(ALEXNET)
    print_table(
        f"warm-ups: error in %, Goyal 2017 at 8192 images, ours at {batch}",
        WARMUPS,
        [
            {
                "warmup": name,
                "published": error,
                "ours": mean_and_deviation(by_name[name]["errors"]),
            }
            for name, error in GOYAL.items()
        ],
    )
    print_table(
        "batches: top-1 in %, AlexNet, and ours with gradual warm-up",
        BATCHES,
        [
            {
                "images": small * row["workers"],
                "published": ALEXNET.get(small * row["workers"]),
                "batch": row["batch"],
                "ours": mean_and_deviation(1 - np.array(row["errors"])),
            }
            for row in rows
            if row["warmup"] in SCALED
        ],
    )
    print_table(
        f"time to {target:.1%} by the fastest warm-up (-: missed by a seed); "
        "speed-up: in steps, of k processors (predicted), of this one (measured)",
        TIMES,
        times,
    )
    limit, *noise = (
        "unknown" if summary[name] is None else f"{summary[name]:.0f}"
        for name in ("batch_limit", "noise_scale", "noise_scale_at_end")
    )
    sys.stdout.write(
        f"batch that doubles the epochs: {limit}; gradient noise scale: "
        f"{noise[0]} when the target was reached, {noise[1]} at the end\n"
    )


def print_table(title: str, columns: Columns, rows: Sequence[Row]) -> None:
    write = printer(columns, title)
    for row in rows:
        write(row)
