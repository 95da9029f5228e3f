"""Rows, summary, conclusion and figure of async_diloco.py."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lab import flags
import numpy as np

from dml.figures import style as figures
from dml.runs.results import Run
from dml.runs.writers import Columns, scaled_cell
from studies.decentralised.async_training import Point, make_task, train

Row = dict[str, Any]
TOLERANCE = 1.1  # largest ratio to the final synchronous loss that counts as reached

COLUMNS: Columns = {
    "method": (17, "{method}"),
    "updates": (8, "{updates}"),
    "loss": (7, "{loss:.3f}"),
    "accuracy": (8, "{accuracy:.3f}"),
    "virtual s": (9, "{seconds:.0f}"),
    "s to loss": (9, scaled_cell("reached", 1.0, ".0f")),
}


def rows(
    methods: Sequence[str], speeds: Sequence[float], values: flags.FlagValues
) -> Iterator[Row]:
    """Train by every method with all seeds; yield a row for each method.

    `reached` is the time at which the loss is at most TOLERANCE times the final loss of
    the first method, mean over seeds; None if a seed does not reach it.

    Args:
      methods: Names in METHODS.
      speeds: Seconds per update of each rank.
      values: The flags.
    """
    seeds = flags.seeds(values)
    tasks = [make_task(values, seed) for seed in seeds]
    targets: list[float] = []
    for name in methods:
        curves = [
            train(task, name, speeds, seed, values)
            for task, seed in zip(tasks, seeds, strict=True)
        ]
        targets = targets or [TOLERANCE * curve[-1].loss for curve in curves]
        yield row(name, curves, targets)


def row(name: str, curves: Sequence[Sequence[Point]], targets: Sequence[float]) -> Row:
    """Return the row of a method: means over seeds, and the curve of the first one.

    Args:
      name: Name of the method.
      curves: Points of the training with each seed.
      targets: Loss to be reached with each seed.
    """
    means = Point(*np.mean([curve[-1] for curve in curves], axis=0).tolist())
    times = [
        next((point.seconds for point in curve if point.loss <= target), np.nan)
        for curve, target in zip(curves, targets, strict=True)
    ]
    reached = float(np.mean(times))
    return {
        "method": name,
        **means._asdict(),
        "updates": round(means.updates),
        "losses": [curve[-1].loss for curve in curves],
        "reached": None if np.isnan(reached) else reached,
        "curve": [list(point) for point in curves[0]],
    }


def summarize(rows: Sequence[Row]) -> Row:
    """Return the flat summary."""
    keys = ("loss", "accuracy", "updates", "seconds", "reached")
    return {f"{row['method']}_{key}": row[key] for row in rows for key in keys}


def conclude(run: Run) -> str:
    """Return the conclusion: losses at equal updates, and times to equal losses."""
    summary = run.summary
    names = [key.removesuffix("_loss") for key in summary if key.endswith("_loss")]
    losses = [f"{name} {summary[f'{name}_loss']:.3f}" for name in names]
    first, *others = names
    target, longest = TOLERANCE * summary[f"{first}_loss"], summary[f"{first}_reached"]
    reached = [
        f"{name} in {summary[f'{name}_reached'] / longest:.0%} of its virtual seconds"
        for name in others
        if longest and summary[f"{name}_reached"]
    ]
    text = f"Loss after equally many updates: {', '.join(losses)}. "
    return text + (
        f"The loss {target:.3f} of {first} is reached by {', '.join(reached)}."
        if reached
        else f"No other method reaches the loss {target:.3f} of {first}."
    )


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw the loss by updates and by virtual seconds."""
    curves = {row["method"]: np.array(row["curve"]) for row in rows}
    panels = [
        figures.Panel(
            "",
            {name: (points[:, x], points[:, 2]) for name, points in curves.items()},
            label,
            "loss on held-out examples",
        )
        for x, label in ((1, "updates of all ranks"), (0, "virtual seconds"))
    ]
    figures.panels(path, panels)
