"""Figures of parameter servers: staleness, and waiting time of workers."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dml.figures import style as figures

COMPUTING_COLOUR, WAITING_COLOUR = "#7fc29b", "#ee8866"
PANEL_WIDTH, PANEL_HEIGHT = 3.4, 2.6  # inches
MAX_COLUMNS = 4  # panels in a row
MAX_BARS = 1024  # in a panel


def histogram(staleness: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return the number of gradients with staleness 0, 1, 2, ..."""
    return np.bincount(np.asarray(staleness, np.int64))


def histograms(
    path: Path,
    counts: Mapping[str, np.ndarray],
    marks: Mapping[str, Sequence[float]] | None = None,
) -> None:
    """Draw histograms of the staleness of gradients, one panel per title.

    Args:
      path: Path of the figure, without suffix.
      counts: By title: numbers of gradients with staleness 0, 1, 2, ...
      marks: By title: expected values, drawn as dotted lines.
    """
    with grid(path, len(counts)) as (_, panels):
        for axes, (name, counted) in zip(panels, counts.items(), strict=True):
            stale = np.arange(len(counted))
            shares, edges = counted / (counted.sum() or 1), np.arange(len(counted) + 1)
            axes.stairs(shares, edges - 0.5, fill=True, color=WAITING_COLOUR)
            mean = stale @ counted / (counted.sum() or 1)
            lines = (marks or {}).get(name, ())
            for mark in lines:
                axes.axvline(mark, color="#555555", linestyle=":", linewidth=1)
            largest = max(1, len(counted) - 1, *lines)
            axes.set(title=f"{name}: mean {mean:.2f}", xlabel="staleness")
            axes.set_xlim(-0.5, largest + 0.5)


def waiting_times(path: Path, work: Mapping[str, np.ndarray], unit: str = "s") -> None:
    """Draw the computing and waiting time of each worker, one panel per title.

    The panels have one scale. With more than MAX_BARS workers, a bar is the mean over
    adjacent workers.

    Args:
      path: Path of the figure, without suffix.
      work: By title: computing and waiting time of each worker, Wx2.
      unit: Unit of the times.
    """
    with grid(path, len(work)) as (figure, panels):
        for axes, (name, seconds_Wx2) in zip(panels, work.items(), strict=True):
            workers = len(seconds_Wx2)
            first = np.linspace(0, workers, min(MAX_BARS, workers) + 1).astype(int)
            sums_Bx2 = np.add.reduceat(seconds_Wx2, first[:-1])
            computed, waited = sums_Bx2.T / np.diff(first)
            total, edges = computed + waited, first - 0.5
            style = {"fill": True, "color": WAITING_COLOUR, "label": "waiting"}
            axes.stairs(total, edges, baseline=computed, **style)
            style = {"fill": True, "color": COMPUTING_COLOUR, "label": "computing"}
            axes.stairs(computed, edges, **style)
            share = seconds_Wx2[:, 1].sum() / (seconds_Wx2.sum() or 1)
            axes.set(title=f"{name}: {share:.0%} waiting", xlabel="worker", ylabel=unit)
        top = max(axes.get_ylim()[1] for axes in panels)
        for axes in panels:
            axes.set_ylim(0, top)
        figures.legend(figure, "outside lower center", ncols=2)


@contextmanager
def grid(path: Path, count: int) -> Iterator[tuple[Any, list[Any]]]:
    """Yield a figure and `count` panels in rows; write the figure at the end."""
    columns = min(MAX_COLUMNS, max(1, count))
    rows = -(-max(1, count) // columns)
    size = (PANEL_WIDTH * columns, PANEL_HEIGHT * rows + 0.3)
    style = {"axes.grid": False, "axes.titlesize": 9}
    with figures.drawing(path, rows, columns, size=size, style=style) as (
        figure,
        panels,
    ):
        for axes in panels[count:]:
            axes.set_visible(False)
        yield figure, panels[:count]
