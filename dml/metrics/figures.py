"""LOG: named curves in, one SVG and one PNG out, without a display."""

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from dml.metrics.writers import Row, Writer

Curve = tuple[Sequence[float], Sequence[float]]  # xs, ys


def curves(
    path: Path,
    series: Mapping[str, Curve],
    *,
    x: str,
    y: str,
    log: str = "",
    dashed: Sequence[str] = (),
    bands: Mapping[str, Curve] | None = None,
) -> None:
    """Draw each of series as a line; log names the log axes: "x", "y" or "xy".

    Writes path.svg and path.png; the names in dashed are drawn so (predictions, say),
    those in bands amid the lows and highs that they have there.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for name, (xs, ys) in series.items():
        (drawn,) = axes.plot(
            xs,
            ys,
            label=name,
            linestyle="--" if name in dashed else "-",
            linewidth=1.5,
            marker="o" if len(xs) <= 20 else "",
            markersize=3.5,
        )
        if bands and name in bands:
            axes.fill_between(
                xs, *bands[name], color=drawn.get_color(), alpha=0.2, lw=0
            )
    axes.set(xlabel=x, ylabel=y)
    axes.set_xscale("log" if "x" in log else "linear")
    axes.set_yscale("log" if "y" in log else "linear")
    axes.grid(alpha=0.3, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if len(series) > 1:
        axes.legend(frameon=False)
    save(figure, path)


def save(figure: Any, path: Path) -> None:
    """Write path.svg and path.png: the same numbers give the same bytes."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "dml"}):
        figure.savefig(f"{path}.svg", metadata={"Date": None})
    figure.savefig(f"{path}.png", dpi=150)


def legible(text: str) -> str:
    """Replace characters that matplotlib's fonts lack: it would warn of each."""
    return "".join(one if ord(one) in _known() else "□" for one in text)


@cache
def _known() -> Set[int]:
    from matplotlib.font_manager import FontProperties, findfont
    from matplotlib.ft2font import FT2Font

    # what is missing in the narrower set of them is missing somewhere
    sets = (
        FT2Font(findfont(FontProperties(family=f"DejaVu Sans{kind}"))).get_charmap()
        for kind in ("", " Mono")
    )
    return frozenset.intersection(*map(frozenset, sets))


@contextmanager
def chart(path: Path, x: str = "step", y: str = "loss") -> Iterator[Writer]:
    """Keep two columns of the rows and draw them when the summary comes."""
    xs: list[float] = []
    ys: list[float] = []

    def row(row: Row) -> None:
        xs.append(row[x])
        ys.append(row[y])

    yield Writer(row, lambda summary: curves(path, {y: (xs, ys)}, x=x, y=y))
