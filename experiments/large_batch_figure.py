"""Rows of large batches in; three figures out: accuracy, time to a target, losses."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from large_batch_claims import BASELINE
from large_batch_report import ALEXNET, Case, fastest, timed

from dml.metrics.figures import drawing, note

COLOURS = {
    BASELINE: "#555555",
    "unscaled": "C1",
    "none": "C3",
    "constant": "C4",
    "gradual": "C0",
}

LABEL = "images in a minibatch"
SMALL = {"legend.fontsize": 8}


def drawn(path: Path, cases: Sequence[Case], large: int, limit: float | None) -> None:
    """Draw all three into the folder."""
    accuracies(path / "accuracy", cases)
    targets(path / "target", cases, limit)
    losses(path / "warmups", [case for case in cases if case.factor in (1, large)])


def warmed(cases: Sequence[Case]) -> Iterator[tuple[str, list[Case]]]:
    """Yield each warm-up with its cases, the first of which is the baseline."""
    for way in COLOURS:
        mine = [case for case in cases if case.way in (BASELINE, way)]
        if way != BASELINE and len(mine) > 1:
            yield way, mine


def accuracies(path: Path, cases: Sequence[Case]) -> None:
    """Draw the accuracy of every warm-up by batch, and AlexNet's."""
    seeds = len(cases[0].runs)
    low = min(100 * (1 - c.errors.mean()) for c in cases if c.way != "unscaled")
    with drawing(path, 1, 2, size=(8.6, 3.7), style=SMALL) as (_, (ours, theirs)):
        for way, mine in warmed(cases):
            shares = 100 * (1 - np.array([case.errors for case in mine]))
            means = shares.mean(axis=1)
            around = means - shares.min(axis=1), shares.max(axis=1) - means
            batches = [case.batch for case in mine]
            look = {"label": way, "color": COLOURS[way], "elinewidth": 0.8}
            ours.errorbar(batches, means, around, fmt="o-", capsize=2, **look)
        ours.set_title(f"ours: mean, least and most of {seeds} seeds")
        ours.set_ylim(min(max(low - 5, 0), 90), 100)
        ours.legend(loc="lower left")
        theirs.plot(list(ALEXNET), list(ALEXNET.values()), "o-", color="k")
        theirs.set(title="published: AlexNet, top-1", ylim=(55, 60))
        for axes in (ours, theirs):
            axes.set(xlabel=LABEL, ylabel="held-out accuracy, %")
            doubling(axes)


def targets(path: Path, cases: Sequence[Case], limit: float | None) -> None:
    """Draw steps, epochs and speed-up to the target by batch or workers."""
    quick = list(fastest(cases).values())
    panels = drawing(path, 1, 3, size=(12.9, 3.7), style=SMALL)
    with panels as (_, (steps, epochs, gains)):
        for way, mine in warmed([case for case in cases if case.steps is not None]):
            batches, look = [case.batch for case in mine], {"color": COLOURS[way]}
            steps.plot(batches, [case.steps for case in mine], "o-", label=way, **look)
            epochs.plot(batches, [case.epochs for case in mine], "o-", **look)
        if cases[0].steps is not None:
            ideal = [cases[0].steps * quick[0].batch / case.batch for case in quick]
            batches = [case.batch for case in quick]
            steps.plot(batches, ideal, "k:", linewidth=1, label="1/k")
        if limit is not None:
            for axes in (steps, epochs):
                axes.axvline(limit, color="gray", linestyle="--", linewidth=1)
            note(epochs, "epochs double", limit)
        speedups(gains, cases)
        steps.set(xlabel=LABEL, ylabel="steps to the target")
        epochs.set(xlabel=LABEL, ylabel="epochs to the target")
        epochs.set_ylim(0, None)
        steps.legend()
        for axes in (steps, epochs, gains):
            doubling(axes)
        for axes in (steps, gains):
            axes.set_yscale("log", base=2)
            axes.yaxis.set_major_formatter("{x:g}")


def speedups(axes: Any, cases: Sequence[Case]) -> None:
    """Draw serial over parallel time to the target, by workers."""
    rows = timed(cases)
    workers = [row["workers"] for row in rows]
    axes.plot(workers, workers, "k:", linewidth=1, label="linear")
    seen = [row for row in rows if row["in_steps"] is not None]
    for label, key in {
        "in steps": "in_steps",
        "k processors, predicted": "predicted",
        "one core, measured": "measured",
    }.items():
        if seen:
            points = [row["workers"] for row in seen], [row[key] for row in seen]
            axes.plot(*points, "o-", label=label)
    axes.set(xlabel="workers", ylabel="speed-up to the target")
    axes.legend()


def losses(path: Path, cases: Sequence[Case]) -> None:
    """Draw the training loss of every warm-up, and of the baseline, by epochs."""
    with drawing(path, 1, 2, size=(8.6, 3.7), style=SMALL) as (_, (whole, start)):
        for case in cases:
            curves = np.array([run.losses for run in case.runs])
            count = case.plan.between / case.plan.count
            epochs = np.arange(1, curves.shape[1] + 1) * count
            around, colour = (curves.min(0), curves.max(0)), COLOURS[case.way]
            label = f"{case.way}, {case.batch} images"
            for axes in (whole, start):
                axes.plot(epochs, curves.mean(0), color=colour, label=label)
                axes.fill_between(
                    epochs, *around, color=colour, alpha=0.12, linewidth=0
                )
        for axes in (whole, start):
            axes.set(xlabel="epochs", ylabel="training loss", yscale="log")
        start.set(xlim=(0, min(8.0, float(epochs[-1]))), title="the start")
        whole.set_title("mean, least and most of all seeds")
        whole.legend()


def doubling(axes: Any) -> None:
    """Make the horizontal axis logarithmic, with plain numbers."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
