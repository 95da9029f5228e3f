"""Rows, summary and figure of two_towers.py, like figure 3 of the paper."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dml.figures import style as figures
from dml.figures.learning import losses
from dml.models.networks.alexnet import TOWERS
from dml.runs.results import Run
from dml.runs.writers import Row, scaled_cell
from dml.train import Curve
from dml.types import Params
from studies.deep.comparison import largest_difference, median_step_seconds

CROSSINGS = ("all-gather", "reduce-scatter")  # other collectives only sum losses
FIRST = 20  # steps in which rounding differences are still small
LINE = 6  # filters in a line of the figure
SHADES = 2.5  # standard deviations between grey and black or white

COLUMNS = {
    "layers that cross": (17, "{crossings}"),
    "devices": (7, "{devices}"),
    "accuracy": (8, "{accuracy:.1%}"),
    "loss": (6, "{cross_entropy:.4f}"),
    "KB per step": (11, scaled_cell("formula_bytes", 1 / 1024, ",.0f")),
    "compiled": (8, scaled_cell("compiled_bytes", 1 / 1024, ",.0f")),
    "ms per step": (11, scaled_cell("seconds_per_step", 1000, ".1f")),
}


def row(
    crossings: Sequence[int], devices: int, result: Curve, formula: int
) -> dict[str, Any]:
    """Return the row of a network.

    Args:
        crossings: layers whose towers exchange activations.
        devices: number of devices.
        result: losses and measures of the training.
        formula: bytes that two devices send in a step, by formula.
    """
    last = result.summary
    return {
        "crossings": "".join(map(str, crossings)),
        "devices": devices,
        "accuracy": last["accuracy"],
        "cross_entropy": last["cross_entropy"],
        "formula_bytes": formula if devices > 1 else 0,
        "compiled_bytes": devices * sum(last.get(f"{k}_bytes", 0) for k in CROSSINGS),
        "seconds_per_step": median_step_seconds(result),
        "losses": result.losses,
    }


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return a flat summary; the first two rows are of one network."""
    one_device, two_devices, *_ = rows
    totals: dict[str, Any] = {
        "loss": two_devices["losses"][-1],
        "largest_difference": largest_difference(
            one_device["losses"], two_devices["losses"]
        ),
        "largest_difference_at_first": largest_difference(
            one_device["losses"][:FIRST], two_devices["losses"][:FIRST]
        ),
        "seconds_per_step_one_device": one_device["seconds_per_step"],
        "seconds_per_step_two_devices": two_devices["seconds_per_step"],
    }
    for row in rows[1:]:
        for name in ("accuracy", "formula_bytes", "compiled_bytes"):
            totals[f"{name}_{row['crossings']}"] = row[name]
    return totals


def conclude(run: Run) -> str:
    """Return the result in one sentence."""
    summary = run.summary
    one = summary["seconds_per_step_one_device"]
    two = summary["seconds_per_step_two_devices"]
    return (
        f"Losses on two devices differ from those on one by at most "
        f"{summary['largest_difference']:.1e}; a step takes {1e3 * two:.1f} ms instead "
        f"of {1e3 * one:.1f} ms."
    )


def filter_changes(start: Params, last: Params) -> np.ndarray:
    """Return the change of the first layer's filters: HxWxIxO."""
    first, second = (
        np.asarray(params["layer_1"]["kernel"]) for params in (start, last)
    )
    return second - first


def draw(path: Path, rows: Sequence[Row], kernel_HxWxIxO: np.ndarray) -> None:
    """Draw the first layer's filters, one panel per tower, and all loss curves."""
    curves = {}
    for row in rows:
        where = "one device" if row["devices"] == 1 else f"{row['devices']} devices"
        share = f"{row['accuracy']:.1%} correct"
        curves[f"cross at {row['crossings']}, {where}: {share}"] = row["losses"]
    halves = np.split(kernel_HxWxIxO, TOWERS, axis=3)
    layout = [[number, "losses"] for number in range(TOWERS)]
    with figures.figure(path, (9.6, 3.9)) as figure:
        panels = figure.subplot_mosaic(layout, width_ratios=(1, 2))
        for number, half in enumerate(halves):
            axes = panels[number]
            axes.imshow(filter_tiles(half), vmin=0, vmax=1, cmap="gray", clip_on=False)
            axes.set_axis_off()
            title = f"tower {number + 1}: change of its filters"
            axes.set_title(title, fontsize=9)
        losses(panels["losses"], curves)


def filter_tiles(kernel_HxWxIxO: np.ndarray) -> np.ndarray:
    """Return filters as one picture; grey is 0; in colour for three input channels."""
    if kernel_HxWxIxO.shape[2] != 3:
        kernel_HxWxIxO = kernel_HxWxIxO.mean(axis=2, keepdims=True)
    high, wide, colours, count = kernel_HxWxIxO.shape
    shades = 0.5 + kernel_HxWxIxO / (2 * SHADES * kernel_HxWxIxO.std() or 1)
    picture = np.ones((-(-count // LINE) * (high + 1), LINE * (wide + 1), colours))
    for number in range(count):
        y, x = number // LINE * (high + 1), number % LINE * (wide + 1)
        picture[y : y + high, x : x + wide] = np.clip(shades[..., number], 0, 1)
    return picture[:-1, :-1].squeeze()
