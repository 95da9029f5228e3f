"""Figures of training and held-out values by step.

The training loss is drawn in a light colour, its moving average in a dark one.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dml.figures import style as figures
from dml.runs.writers import Row, Writer

SMOOTHING = 40  # a moving average includes 1 / SMOOTHING of the steps on each side
POINTS = 1000  # maximum number of points of a line
STEEP = 10  # minimum ratio of the first to the last loss for a logarithmic axis
TRAINING, HELD_OUT = "#3b6ea5", "#cc3311"


@contextmanager
def learning(
    path: Path, loss: str = "cross_entropy", share: str = "accuracy"
) -> Iterator[Writer]:
    """Collect losses and held-out values of rows and of the summary; draw them.

    Args:
      path: Path of the figure, without suffix.
      loss: Name of the held-out loss in rows and summary.
      share: Name of a held-out share from 0 to 1, drawn in its own panel.
    """
    losses: list[tuple[float, float]] = []
    held_out: dict[str, dict[float, float]] = {loss: {}, share: {}}

    def note(step: float, row: Row) -> None:
        for name, values in held_out.items():
            if name in row:
                values[step] = row[name]

    def row(row: Row) -> None:
        losses.append((row["step"], row["loss"]))
        note(row["step"], row)

    def summary(summary: Row) -> None:
        if losses:
            note(losses[-1][0], summary)
            draw(path, np.array(losses, float), *held_out.values())

    yield Writer(row, summary)


def draw(
    path: Path,
    losses_Nx2: np.ndarray,
    held_out: dict[float, float],
    shares: dict[float, float],
) -> None:
    """Write path.svg and path.png.

    Args:
      path: Path of the figure, without suffix.
      losses_Nx2: Steps and training losses.
      held_out: Held-out losses by step.
      shares: Held-out shares by step.
    """
    panels = 2 if len(shares) > 1 else 1  # a single share is part of a label
    size = (5.6 * panels + 0.8, 3.9)
    steps, losses = losses_Nx2.T
    means = smooth(losses)
    last = "".join(f" · accuracy {share:.1%}" for share in [*shares.values()][-1:])
    with figures.drawing(path, 1, panels, size=size) as (_, (left, *right)):
        index = thin(losses)
        line_style = {"color": TRAINING, "alpha": 0.25, "linewidth": 0.8}
        left.plot(steps[index], losses[index], **line_style)
        index = np.unique(np.linspace(0, len(steps) - 1, POINTS).astype(int))
        line_style = {"color": TRAINING, "linewidth": 1.8, "label": "training"}
        left.plot(steps[index], means[index], **line_style)
        plot_held_out(left, held_out, "{:.3g}" + (last if panels == 1 else ""))
        if means.min() > 0 and means[0] > STEEP * means[-1]:
            left.set_yscale("log")
        left.set(xlabel="step", ylabel="loss")
        if held_out:
            left.legend()
        for axes in right:
            plot_held_out(axes, shares, "{:.1%}")
            axes.legend(loc="lower right")
            axes.set(xlabel="step", ylabel="accuracy", xlim=left.get_xlim())
            axes.yaxis.set_major_formatter("{x:.0%}")
            axes.set_ylim(0, 1)


def losses(axes: Any, curves: Mapping[str, Sequence[float]]) -> None:
    """Draw smoothed losses by step; the line of the first curve is wide."""
    wide = {"linewidth": 4, "alpha": 0.35}
    for index, (name, values) in enumerate(curves.items()):
        line_style = wide if index == 0 else {}
        axes.plot(smooth(np.array(values)), label=name, **line_style)
    axes.set(xlabel="step", ylabel="loss", yscale="log")
    axes.legend(fontsize=8)


def smooth(values: np.ndarray) -> np.ndarray:
    """Return the centred moving average; windows are shorter at both ends."""
    half_window = len(values) // SMOOTHING
    sums = np.concatenate([[0.0], np.cumsum(values)])
    index = np.arange(len(values))
    begin = np.maximum(index - half_window, 0)
    end = np.minimum(index + half_window + 1, len(values))
    return (sums[end] - sums[begin]) / (end - begin)


def thin(values: np.ndarray) -> np.ndarray:
    """Return the indices of the minimum and the maximum in each part of the values.

    If there are at most POINTS values, return all indices.
    """
    index = np.arange(len(values))
    if len(values) <= POINTS:
        return index
    parts = np.array_split(index, POINTS // 2)
    ends = [
        (part[values[part].argmin()], part[values[part].argmax()]) for part in parts
    ]
    return np.unique(ends)


def plot_held_out(axes: Any, values: dict[float, float], template: str) -> None:
    """Draw values by step, with the last value in the legend."""
    if values:
        axes.plot(
            list(values),
            list(values.values()),
            "o-",
            color=HELD_OUT,
            label="held out " + template.format(list(values.values())[-1]),
            zorder=3,
        )
