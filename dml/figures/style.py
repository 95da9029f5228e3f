"""Figures in one style, each written as an SVG and a PNG."""

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dml.runs.writers import Row, Writer

MAX_MARKED_POINTS = 20  # curves with more points are drawn without markers
MAX_CURVES_IN_LEGEND = 9  # of a legend inside of the panel
Curve = tuple[Sequence[float], Sequence[float]]  # xs, ys
COLOURS = (  # the ten of matplotlib, and ten lighter ones
    "1f77b4 ff7f0e 2ca02c d62728 9467bd 8c564b e377c2 7f7f7f bcbd22 17becf "
    "aec7e8 ffbb78 98df8a ff9896 c5b0d5 c49c94 f7b6d2 c7c7c7 dbdb8d 9edae5"
)
STYLE: dict[Any, Any] = {  # rcParams of all figures
    "axes.grid": True,
    "axes.prop_cycle": f"cycler(color={COLOURS.split()})",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 3.5,
    "savefig.dpi": 150,
    "svg.hashsalt": "dml",
}
PICTURE: dict[Any, Any] = {"axes.grid": False}  # style of images and timelines


class Panel(NamedTuple):
    """Curves of one panel of a figure."""

    title: str
    series: Mapping[str, Curve]  # curves by name
    x: str  # label of the x axis
    y: str  # label of the y axis


@contextmanager
def figure(
    path: Path,
    size: tuple[float, float],
    style: Any = None,
    layout: Any = "constrained",
) -> Iterator[Any]:
    """Yield an empty figure; write path.svg and path.png at the end.

    Equal data give byte-identical files.

    Args:
      path: Path of both files, without suffix.
      size: Width and height in inches.
      style: rcParams in addition to STYLE.
      layout: matplotlib's layout engine.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE | (style or {})):
        result = Figure(figsize=size, layout=layout)
        yield result
        result.draw_without_rendering()
        result.set_layout_engine("none")  # the layout is computed once, not per file
        save(result, path)


@contextmanager
def drawing(
    path: Path,
    rows: int = 1,
    columns: int = 1,
    *,
    size: tuple[float, float],
    style: Any = None,
    layout: Any = "constrained",
    **subplots: Any,
) -> Iterator[tuple[Any, list[Any]]]:
    """Yield a figure and its panels, row by row; write both files at the end.

    Args:
      path: As in `figure`.
      rows: Number of rows of panels.
      columns: Number of columns of panels.
      size: As in `figure`.
      style: As in `figure`.
      layout: As in `figure`.
      **subplots: Further arguments of `Figure.subplots`.
    """
    with figure(path, size, style, layout) as result:
        grid = result.subplots(rows, columns, squeeze=False, **subplots)
        yield result, list(grid.flat)


def legend(figure: Any, loc: str = "outside right center", **options: Any) -> None:
    """Add a legend of the curves of the first panel, outside of all panels."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc=loc, **options)


def note(axes: Any, text: str, x: float, *, va: str = "top", ha: str = "right") -> None:
    """Write text along a vertical line.

    Args:
      axes: The panel.
      text: The text.
      x: Position of the line.
      va: "top" or "bottom" of the panel.
      ha: Alignment at the line.
    """
    place = (x, 0.98 if va == "top" else 0.02)
    options: dict[str, Any] = {"rotation": 90, "fontsize": 8, "ha": ha, "va": va}
    axes.annotate(text, place, xycoords=("data", "axes fraction"), **options)


def panels(
    path: Path,
    panels: Sequence[Panel],
    *,
    log: str = "",
    within: tuple[float, float] | None = None,
    dashed: Sequence[str] = (),
    bands: Mapping[str, Curve] | None = None,
) -> None:
    """Draw panels side by side with one legend; write path.svg and path.png.

    Args:
      path: Path of both files, without suffix.
      panels: Panels of curves; values that are not finite are omitted.
      log: Logarithmic axes: "x", "y" or "xy".
      within: Limits of y.
      dashed: Names of curves with dashed lines, such as predictions.
      bands: Lower and upper values around curves, by name of the curve.
    """
    side_by_side = len(panels) > 1
    size = (4.2 * len(panels) + 1.6, 3.8) if side_by_side else (6.4, 4.0)
    with drawing(path, 1, len(panels), size=size) as (figure, all_axes):
        for axes, panel in zip(all_axes, panels, strict=True):
            scale = dict.fromkeys("xy", "linear")
            for name, (xs, ys) in panel.series.items():
                finite = np.isfinite(ys)
                points = np.asarray(xs)[finite], np.asarray(ys)[finite]
                # a logarithmic axis without a positive number cannot be drawn
                scale |= {
                    axis: "log"
                    for axis, values in zip("xy", points, strict=True)
                    if axis in log and (values > 0).any()
                }
                style = "--" if name in dashed else "-"
                style += "o" if finite.sum() <= MAX_MARKED_POINTS else ""
                (line,) = axes.plot(*points, style, label=name)
                if bands and name in bands:
                    low, high = (np.asarray(side)[finite] for side in bands[name])
                    colour = line.get_color()
                    axes.fill_between(
                        points[0], low, high, color=colour, alpha=0.2, lw=0
                    )
            axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
            if within:
                axes.set_ylim(within)
            axes.set_xscale(scale["x"])
            axes.set_yscale(scale["y"])
            numbers = [x for xs, _ in panel.series.values() for x in xs]
            if "x" not in log and are_integers(numbers):
                whole_ticks(axes.xaxis)
        if side_by_side or len(panels[0].series) > MAX_CURVES_IN_LEGEND:
            legend(figure)
        elif len(panels[0].series) > 1:
            all_axes[0].legend()


def are_integers(numbers: Sequence[float]) -> bool:
    """Return whether all numbers are integers."""
    return all(isinstance(number, int | np.integer) for number in numbers)


def whole_ticks(axis: Any) -> None:
    """Set the ticks of an axis of counts to whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))


def curves(
    path: Path, series: Mapping[str, Curve], *, x: str, y: str, **options: Any
) -> None:
    """Draw one panel without a title.

    Args:
      path: Path of both files, without suffix.
      series: Curves by name.
      x: Label of the x axis.
      y: Label of the y axis.
      **options: Options of `panels`.
    """
    panels(path, [Panel("", series, x, y)], **options)


def save(figure: Any, path: Path) -> None:
    """Write path.svg and path.png; equal data give byte-identical files."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        figure.savefig(f"{path}.svg", metadata={"Date": None})
        figure.savefig(f"{path}.png")


def legible(text: str) -> str:
    """Replace characters that are not in matplotlib's fonts by boxes."""
    return "".join(letter if ord(letter) in _code_points() else "□" for letter in text)


@cache
def _code_points() -> Set[int]:
    """Return the code points of matplotlib's default fonts."""
    from matplotlib.font_manager import FontProperties, findfont
    from matplotlib.ft2font import FT2Font

    sets = (
        FT2Font(findfont(FontProperties(family=f"DejaVu Sans{kind}"))).get_charmap()
        for kind in ("", " Mono")
    )
    return frozenset.intersection(*map(frozenset, sets))


@contextmanager
def chart(path: Path, x: str = "step", y: str = "loss") -> Iterator[Writer]:
    """Collect two columns of the rows and draw them at the end."""
    xs: list[float] = []
    ys: list[float] = []

    def row(row: Row) -> None:
        xs.append(row[x])
        ys.append(row[y])

    yield Writer(row, lambda summary: curves(path, {y: (xs, ys)}, x=x, y=y))
