"""Rows of large batches in; three figures out: accuracy, time to a target, losses."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from large_batch_claims import BASELINE
from large_batch_report import ALEXNET, Case, fastest, parallel

from dml.metrics.figures import save
from dml.metrics.server_figure import plain, settled

COLOURS = {
    BASELINE: "#555555",
    "unscaled": "C1",
    "none": "C3",
    "constant": "C4",
    "gradual": "C0",
}

LINE = {"linewidth": 1.4, "markersize": 3.5}


def drawn(path: Path, cases: Sequence[Case], large: int, limit: float | None) -> None:
    """Draw all three into the folder."""
    accuracies(path / "accuracy", cases)
    targets(path / "target", cases, limit)
    losses(path / "warmups", [case for case in cases if case.factor in (1, large)])


def accuracies(path: Path, cases: Sequence[Case]) -> None:
    """Draw accuracy by batch, ours of every warm-up beside AlexNet's."""
    figure, (ours, theirs) = panels(2)
    for way in COLOURS:
        # each begins at the one worker that warms up to nothing
        mine = [case for case in cases if case.way in (BASELINE, way)]
        if way == BASELINE or len(mine) < 2:
            continue
        several = [100 * (1 - case.errors) for case in mine]
        means = [one.mean() for one in several]
        around = np.array(
            [[m - s.min(), s.max() - m] for m, s in zip(means, several, strict=True)]
        ).T
        batches = [case.batch for case in mine]
        ours.errorbar(
            batches,
            means,
            around,
            fmt="o-",
            capsize=2,
            markersize=3.5,
            label=way,
            color=COLOURS[way],
            linewidth=1.4,
            elinewidth=0.8,
        )
    seeds = len(cases[0].runs)
    ours.set_title(f"ours: mean, least and most of {seeds} seeds", fontsize=10)
    low = min(100 * (1 - c.errors.mean()) for c in cases if c.way != "unscaled")
    ours.set_ylim(min(max(low - 5, 0), 90), 100)
    ours.legend(frameon=False, fontsize=8, loc="lower left")
    theirs.plot(list(ALEXNET), list(ALEXNET.values()), "o-", color="k", markersize=3.5)
    theirs.set_title("published: AlexNet, top-1", fontsize=10)
    theirs.set_ylim(55, 60)
    for axes in (ours, theirs):
        axes.set(xlabel="images in a minibatch", ylabel="held-out accuracy, %")
        doubling(axes)
    save(settled(figure), path)


def targets(path: Path, cases: Sequence[Case], limit: float | None) -> None:
    """Draw steps, epochs and speed-up to the target by batch or workers."""
    figure, (steps, epochs, gains) = panels(3)
    for way in COLOURS:
        mine = [c for c in cases if c.way in (BASELINE, way) and c.steps is not None]
        if way == BASELINE or len(mine) < 2:
            continue
        for axes, values in (
            (steps, [case.steps for case in mine]),
            (epochs, [case.epochs for case in mine]),
        ):
            axes.plot(
                [case.batch for case in mine],
                values,
                "o-",
                label=way,
                color=COLOURS[way],
                linewidth=1.4,
                markersize=3.5,
            )
    batches = [case.batch for case in fastest(cases).values()]
    one = cases[0].steps
    if one is not None:
        ideal = [one * batches[0] / batch for batch in batches]
        steps.plot(batches, ideal, "k:", linewidth=1, label="1/k")
    if limit is not None:
        for axes in (steps, epochs):
            axes.axvline(limit, color="gray", linestyle="--", linewidth=1)
        epochs.annotate(
            "epochs double",
            (limit, 0.98),
            xycoords=("data", "axes fraction"),
            rotation=90,
            fontsize=8,
            ha="right",
            va="top",
        )
    speedups(gains, cases)
    steps.set(xlabel="images in a minibatch", ylabel="steps to the target")
    epochs.set(xlabel="images in a minibatch", ylabel="epochs to the target")
    epochs.set_ylim(0, None)
    steps.legend(frameon=False, fontsize=8)
    for axes in (steps, gains):
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter("{x:g}")
    for axes in (steps, epochs, gains):
        doubling(axes)
    save(settled(figure), path)


def speedups(axes: Any, cases: Sequence[Case]) -> None:
    """Draw serial over parallel time to the target, by workers."""
    quick = fastest(cases)
    axes.plot(list(quick), list(quick), "k:", linewidth=1, label="linear")
    predicted, one = parallel(quick), quick[1]
    if one.steps is not None:
        seen = {k: case for k, case in quick.items() if case.steps is not None}
        for label, gains in {
            "in steps": [one.steps / case.steps for case in seen.values()],
            "k processors, predicted": [predicted[1] / predicted[k] for k in seen],
            "one core, measured": [one.seconds / c.seconds for c in seen.values()],
        }.items():
            axes.plot(list(seen), gains, "o-", label=label, **LINE)
    axes.set(xlabel="workers", ylabel="speed-up to the target")
    axes.legend(frameon=False, fontsize=8)


def losses(path: Path, cases: Sequence[Case]) -> None:
    """Draw the training loss of every warm-up, and of the baseline, by epochs."""
    figure, (whole, start) = panels(2)
    for case in cases:
        curves = np.array([run.losses for run in case.runs])
        epochs = np.arange(1, curves.shape[1] + 1) * case.plan.between / case.plan.count
        for axes in (whole, start):
            colour = COLOURS[case.way]
            label = f"{case.way}, {case.batch} images"
            axes.plot(epochs, curves.mean(0), color=colour, label=label, linewidth=1.4)
            around = curves.min(0), curves.max(0)
            axes.fill_between(epochs, *around, color=colour, alpha=0.12, linewidth=0)
    for axes in (whole, start):
        axes.set(xlabel="epochs", ylabel="training loss", yscale="log")
        axes.grid(alpha=0.3, linewidth=0.6)
        plain(axes)
    first = min(8.0, float(epochs[-1]))
    start.set(xlim=(0, first), title="the start")
    whole.set_title("mean, least and most of all seeds", fontsize=10)
    start.title.set_fontsize(10)
    whole.legend(frameon=False, fontsize=8)
    save(settled(figure), path)


def panels(count: int) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.3 * count, 3.7), layout="constrained")
    return figure, figure.subplots(1, count)


def doubling(axes: Any) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.grid(alpha=0.3, linewidth=0.6)
    plain(axes)
