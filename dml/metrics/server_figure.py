"""LOG: runs on parameter servers in, their pictures out: staleness and waiting."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dml.metrics.figures import Curve, save

COMPUTING, WAITING = "#7fc29b", "#ee8866"
WIDE, HIGH = 3.4, 2.6  # inches of a panel


class Panel(NamedTuple):
    """Curves that share a picture."""

    title: str
    series: Mapping[str, Curve]
    x: str
    y: str


def histogram(staleness: Sequence[float] | np.ndarray) -> np.ndarray:
    """Count how many gradients had staleness 0, 1, 2, ..."""
    return np.bincount(np.asarray(staleness, np.int64))


def histograms(
    path: Path,
    counts: Mapping[str, np.ndarray],
    marks: Mapping[str, Sequence[float]] | None = None,
) -> None:
    """Draw a histogram each: of all gradients, the share of each staleness.

    Marks are where dotted lines stand: what is expected of that one.
    """
    figure, panels = grid(len(counts))
    for axes, (name, counted) in zip(panels, counts.items(), strict=True):
        stale = np.arange(len(counted))
        shares, edges = counted / (counted.sum() or 1), np.arange(len(counted) + 1)
        axes.stairs(shares, edges - 0.5, fill=True, color=WAITING)
        mean = stale @ counted / (counted.sum() or 1)
        axes.set_title(f"{name}: mean {mean:.2f}", fontsize=9)
        lines = (marks or {}).get(name, ())
        for mark in lines:
            axes.axvline(mark, color="#555555", linestyle=":", linewidth=1)
        most = max(1, len(counted) - 1, *lines)
        axes.set(xlabel="staleness", xlim=(-0.5, most + 0.5))
        plain(axes)
    save(settled(figure), path)


def waits(path: Path, work: Mapping[str, np.ndarray], unit: str = "s") -> None:
    """Draw what each worker computed and waited, a row of `work` a worker."""
    figure, panels = grid(len(work))
    for axes, (name, seconds_Wx2) in zip(panels, work.items(), strict=True):
        edges = np.arange(len(seconds_Wx2) + 1) - 0.5
        computed, waited = seconds_Wx2[:, 0], seconds_Wx2[:, 1]
        bars = {"edges": edges, "fill": True}
        axes.stairs(
            computed + waited, baseline=computed, color=WAITING, label="waiting", **bars
        )
        axes.stairs(computed, color=COMPUTING, label="computing", **bars)
        share = waited.sum() / (seconds_Wx2.sum() or 1)
        axes.set_title(f"{name}: {share:.0%} waiting", fontsize=9)
        axes.set(xlabel="worker", ylabel=unit)
        plain(axes)
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize=9,
    )
    save(settled(figure), path)


def progress(
    path: Path,
    panels: Sequence[Panel],
    *,
    within: tuple[float, float] | None = None,
    dashed: Sequence[str] = (),
) -> None:
    """Draw curves side by side, with one legend, and y within those two if given.

    Numbers that are not finite are left out; the names in dashed are drawn so.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(panels) + 1.6, 3.8), layout="constrained")
    every = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, panel in zip(every, panels, strict=True):
        for name, (xs, ys) in panel.series.items():
            seen = np.isfinite(ys)
            style = "--" if name in dashed else "-"
            axes.plot(np.asarray(xs)[seen], np.asarray(ys)[seen], style, label=name)
        axes.set_title(panel.title, fontsize=10)
        axes.set(xlabel=panel.x, ylabel=panel.y)
        if within:
            axes.set_ylim(within)
        axes.grid(alpha=0.3, linewidth=0.6)
        plain(axes)
    handles, labels = every[0].get_legend_handles_labels()
    if len(labels) > 1:
        where: dict[str, Any] = {"loc": "outside right center", "fontsize": 9}
        figure.legend(handles, labels, frameon=False, **where)
    save(settled(figure), path)


def grid(count: int) -> tuple[Any, list[Any]]:
    """Return a figure and its panels, at most four in a row."""
    from matplotlib.figure import Figure

    columns = min(4, max(1, count))
    rows = -(-max(1, count) // columns)
    size = (WIDE * columns, HIGH * rows + 0.3)
    figure = Figure(figsize=size, layout="constrained")
    every = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for axes in every[count:]:
        axes.set_visible(False)
    return figure, every[:count]


def settled(figure: Any) -> Any:
    """Lay a figure out once, not for every file."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


def plain(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
