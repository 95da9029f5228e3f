"""Figures of large_batch.py: accuracy, time to the target, and losses."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dml.figures.style import drawing, note
from dml.runs.writers import Row
from studies.large_batch.claims import BASELINE
from studies.large_batch.report import ALEXNET

COLOURS = {
    BASELINE: "#555555",
    "unscaled": "C1",
    "none": "C3",
    "constant": "C4",
    "gradual": "C0",
}
LABEL = "images in a minibatch"
SMALL = {"legend.fontsize": 8}
SPEEDUPS = {
    "in_steps": "by number of steps",
    "predicted": "k processors, predicted",
    "measured": "one core, measured",
}


def by_warmup(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Yield each warm-up with the baseline row and its rows."""
    for name in COLOURS:
        group = [row for row in rows if row["warmup"] in (BASELINE, name)]
        if name != BASELINE and len(group) > 1:
            yield name, group


def accuracies(path: Path, rows: Sequence[Row]) -> None:
    """Draw the accuracy of every warm-up by batch size, and AlexNet's."""
    low = min(100 * (1 - row["error"]) for row in rows if row["warmup"] != "unscaled")
    with drawing(path, 1, 2, size=(8.6, 3.7), style=SMALL) as (_, (ours, theirs)):
        for name, group in by_warmup(rows):
            shares = 100 * (1 - np.array([row["errors"] for row in group]))
            means = shares.mean(axis=1)
            around = means - shares.min(axis=1), shares.max(axis=1) - means
            batches = [row["batch"] for row in group]
            look = {"label": name, "color": COLOURS[name], "elinewidth": 0.8}
            ours.errorbar(batches, means, around, fmt="o-", capsize=2, **look)
        ours.set_title(f"ours: mean and range of {len(rows[0]['errors'])} seeds")
        ours.set_ylim(min(max(low - 5, 0), 90), 100)
        ours.legend(loc="lower left")
        theirs.plot(list(ALEXNET), list(ALEXNET.values()), "o-", color="k")
        theirs.set(title="published: AlexNet, top-1", ylim=(55, 60))
        for axes in (ours, theirs):
            axes.set(xlabel=LABEL, ylabel="held-out accuracy, %")
            doubling(axes)


def targets(
    path: Path, rows: Sequence[Row], times: Sequence[Row], limit: float | None
) -> None:
    """Draw steps and epochs to the target by batch size, and speed-up by workers.

    Args:
        path: path of the figures, without .svg and .png.
        rows: rows of all trainings.
        times: rows with speed-ups.
        limit: batch size that doubles the epochs, if known.
    """
    known = [row for row in rows if row["steps_to_target"] is not None]
    with drawing(path, 1, 3, size=(12.9, 3.7), style=SMALL) as (_, panels):
        steps, epochs, gains = panels
        for name, group in by_warmup(known):
            batches = [row["batch"] for row in group]
            for axes, key in ((steps, "steps"), (epochs, "epochs")):
                values = [row[f"{key}_to_target"] for row in group]
                axes.plot(batches, values, "o-", label=name, color=COLOURS[name])
        if rows[0]["steps_to_target"] is not None:
            batches = [row["batch"] for row in times]
            first = rows[0]["steps_to_target"] * batches[0]
            ideal = [first / batch for batch in batches]
            steps.plot(batches, ideal, "k:", linewidth=1, label="1/k")
        if limit is not None:
            for axes in (steps, epochs):
                axes.axvline(limit, color="gray", linestyle="--", linewidth=1)
            note(epochs, "epochs double", limit)
        workers = [row["workers"] for row in times]
        gains.plot(workers, workers, "k:", linewidth=1, label="linear")
        reached = [row for row in times if row["in_steps"] is not None]
        for key, label in SPEEDUPS.items() if reached else ():
            points = [row["workers"] for row in reached], [row[key] for row in reached]
            gains.plot(*points, "o-", label=label)
        gains.set(xlabel="workers", ylabel="speed-up to the target")
        gains.legend()
        steps.set(xlabel=LABEL, ylabel="steps to the target")
        epochs.set(xlabel=LABEL, ylabel="epochs to the target")
        epochs.set_ylim(0, None)
        steps.legend()
        for axes in panels:
            doubling(axes)
        for axes in (steps, gains):
            axes.set_yscale("log", base=2)
            axes.yaxis.set_major_formatter("{x:g}")


def losses(path: Path, curves: Mapping[tuple[str, int], Any], between: float) -> None:
    """Draw training losses by epochs.

    curves: losses, SEEDSxN, by warm-up and batch size.
    between: epochs between two losses.
    """
    with drawing(path, 1, 2, size=(8.6, 3.7), style=SMALL) as (_, panels):
        full, start = panels
        for (name, batch), values in curves.items():
            look: dict[str, Any] = {"color": COLOURS[name]}
            around = values.min(0), values.max(0)
            epochs = np.arange(1, values.shape[1] + 1) * between
            for axes in panels:
                label = f"{name}, {batch} images"
                axes.plot(epochs, values.mean(0), label=label, **look)
                axes.fill_between(epochs, *around, alpha=0.12, linewidth=0, **look)
        for axes in panels:
            axes.set(xlabel="epochs", ylabel="training loss", yscale="log")
        start.set(xlim=(0, min(8.0, float(epochs[-1]))), title="first epochs")
        full.set_title("mean and range of all seeds")
        full.legend()


def doubling(axes: Any) -> None:
    """Make the horizontal axis logarithmic, with plain numbers."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
