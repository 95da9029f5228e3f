"""The rows, conclusion and figures of compressed.py."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dml.case import Measured
from dml.figures import style as figures
from dml.runs.results import Run
from dml.runs.writers import Columns, scaled_cell
from studies.compression.runs import Costs

Row = dict[str, Any]
AXES = {
    "updates": "update",
    "bytes": "MB sent per rank",
    "seconds": "virtual seconds",
}
POINTS = 40  # of a curve in a figure
TAIL = 20  # updates over which the loss at the end is averaged
CLOSE = 0.01  # accuracies are close if they differ by at most this much
CLOSE_LOSS = 0.05  # losses are close if they differ by at most this share

COLUMNS: Columns = {
    "reducer": (30, "{reducer}"),
    "ratio": (6, "{ratio:.1f}"),
    "loss": (7, "{loss:.4f}"),
    "accuracy": (8, "{accuracy:.3f}"),
    "ms": (7, scaled_cell("step_seconds", 1e3, ".3f")),
    "pays below": (12, "{pays}"),
    "MB/epoch": (8, "{megabytes_per_epoch:.3g}"),
    "codec us": (8, scaled_cell("codec_seconds", 1e6, ".0f")),
}


class Trained(NamedTuple):
    """The trainings with a reducer, by seed, and their costs."""

    name: str
    optimizer: str
    curves: Sequence[Measured]
    costs: Costs
    updates_per_epoch: float


def row(trained: Trained, exact: Sequence[Row]) -> Row:
    """Return the row of a reducer.

    Args:
      trained: Its trainings.
      exact: The row of the exact reducer; empty for this reducer itself.
    """
    first, costs = trained.curves[0], trained.costs
    updates = len(first.rows)
    sent = 4 * sum(step["words_sent"] for step in first.rows) / updates
    wire = sum(step["wire_seconds"] for step in first.rows) / updates
    saved = exact[0]["bytes_per_update"] - sent if exact else 0.0
    bandwidth = 8e-9 * saved / costs.codec if saved > 0 and costs.codec > 0 else None
    losses = [
        statistics.fmean(step["loss"] for step in curve.rows[-TAIL:])
        for curve in trained.curves
    ]
    accuracies = measured(trained.curves, "accuracy")
    held_out = measured(trained.curves, "loss")
    return {
        "reducer": trained.name,
        "optimizer": trained.optimizer,
        "bytes_per_update": sent,
        "megabytes_per_epoch": 1e-6 * sent * trained.updates_per_epoch,
        "ratio": exact[0]["bytes_per_update"] / sent if exact and sent else 1.0,
        "last_ratio": last_ratio(first, exact),
        "first_loss": first.rows[0]["loss"],
        "loss": statistics.fmean(losses),
        "losses": losses,
        "held_out_loss": statistics.fmean(held_out) if held_out else None,
        "held_out_losses": held_out,
        "accuracy": statistics.fmean(accuracies) if accuracies else None,
        "accuracies": accuracies,
        "gradient_seconds": costs.gradient,
        "codec_seconds": costs.codec,
        "wire_seconds": wire,
        "step_seconds": costs.gradient + costs.codec + wire,
        "break_even_gbps": bandwidth,
        "pays": pays(bandwidth, bool(exact), saved),
    }


def last_ratio(curve: Measured, exact: Sequence[Row]) -> float:
    """Return the ratio of bytes of the last update, after any warm-up."""
    sent = 4 * curve.rows[-1]["words_sent"]
    return exact[0]["bytes_per_update"] / sent if exact and sent else 1.0


def measured(curves: Sequence[Measured], key: str) -> list[float]:
    """Return a measure of the last parameters by seed; empty if there is none.

    The loss of problems without an evaluation is that of the last step.
    """
    measures = [{**curve.rows[-1], **curve.evaluation} for curve in curves]
    return [each[key] for each in measures if key in each]


def pays(bandwidth: float | None, is_code: bool, saved: float) -> str:
    """Return the text of the bandwidth below which a code saves time."""
    if bandwidth is None:
        return "never" if is_code and saved <= 0 else "-"
    return f"{bandwidth:.2f} Gb/s"


def summarize(rows: Sequence[Row]) -> Row:
    """Return the flat summary."""
    keys = ("bytes_per_update", "ratio", "loss", "accuracy", "step_seconds")
    keys += ("break_even_gbps",)
    return {f"{row['reducer']}_{key}": row[key] for row in rows for key in keys}


def conclude(run: Run) -> str:
    """Return the best ratio among reducers that are as accurate as the exact one."""
    summary = run.summary
    metric = "accuracy" if summary["exact_accuracy"] is not None else "loss"
    last = "_break_even_gbps"
    names = [key.removesuffix(last) for key in summary if key.endswith(last)]
    others = [name for name in names if name != "exact"]
    exact = summary[f"exact_{metric}"]
    close = [
        name for name in others if is_close(metric, summary[f"{name}_{metric}"], exact)
    ]
    if not close:
        return f"No other reducer has the {metric} of the exact one, {exact:.3f}."
    best = max(close, key=lambda name: summary[f"{name}_ratio"])
    fastest = min(close, key=lambda name: summary[f"{name}_step_seconds"])
    own, plain = (1e3 * summary[f"{name}_step_seconds"] for name in (fastest, "exact"))
    return (
        f"At the {metric} of the exact reducer, {exact:.3g}, {best} sends "
        f"{summary[f'{best}_ratio']:.3g} times fewer bytes ({metric} "
        f"{summary[f'{best}_{metric}']:.3g}). Here an exact update takes {plain:.3f} "
        f"ms, the fastest of these codes, {fastest}, {own:.3f} ms."
    )


def is_close(metric: str, value: float, exact: float) -> bool:
    """Return whether an accuracy or a loss is about as good as that of `exact`."""
    if metric == "accuracy":
        return value >= exact - CLOSE
    return value <= exact * (1 + CLOSE_LOSS)


def draw(path: Path, curves: Mapping[str, Sequence[Row]], rows: Sequence[Row]) -> None:
    """Draw the loss, smoothed over TAIL updates, by updates, bytes and seconds."""
    series: dict[str, dict[str, figures.Curve]] = {axis: {} for axis in AXES}
    for row in rows:
        steps = curves[row["reducer"]]
        numbers = np.arange(1, len(steps) + 1)
        sent = 4e-6 * np.cumsum([step["words_sent"] for step in steps])
        shown = np.unique(np.geomspace(1, len(steps), POINTS).astype(int)) - 1
        losses = smoothed([step["loss"] for step in steps])[shown]
        for axis, xs in zip(
            AXES, (numbers, sent, numbers * row["step_seconds"]), strict=True
        ):
            series[axis][row["reducer"]] = xs[shown].tolist(), losses.tolist()
    dashed = [name for name in curves if "+feedback" not in name and name != "exact"]
    panels = {
        axis: figures.Panel("", series[axis], label, "training loss")
        for axis, label in AXES.items()
    }
    for axis, panel in panels.items():
        figures.panels(path / axis, [panel], log="xy", dashed=dashed)
    both = [panels["bytes"], panels["seconds"]]
    figures.panels(path / "bytes_and_seconds", both, log="xy", dashed=dashed)


def smoothed(losses: Sequence[float]) -> np.ndarray:
    """Return means of losses whose weights fall by 1/TAIL per update."""
    means = [losses[0]]
    for loss in losses[1:]:
        means.append(means[-1] + (loss - means[-1]) / TAIL)
    return np.array(means)
