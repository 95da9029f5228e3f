"""LOG: a race's rows in; a table, and seconds by bytes with their crossovers, out."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from dml.metrics.figures import save
from dml.metrics.writers import Row, Writer


def ratio(above: float | None, below: float) -> str:
    return "-" if above is None or not below else f"{above / below:.3g}"


def bus_gigabytes(row: Row) -> float:
    """What each rank's link must carry, by the best of algorithms."""
    return 2 * (row["p"] - 1) / row["p"] * row["bytes"] / 1e9


COLUMNS: dict[str, tuple[int, Callable[[Row], str]]] = {
    "buffer": (10, lambda row: "registered" if row["registered"] else "plain"),
    "bytes": (11, lambda row: f"{row['bytes']:,}"),
    "algorithm": (16, lambda row: row["algorithm"]),
    "ms": (9, lambda row: f"{row['seconds'] * 1e3:.4f}"),
    "bus GB/s": (8, lambda row: ratio(bus_gigabytes(row), row["seconds"])),
    "x native": (8, lambda row: ratio(row["native_seconds"], row["seconds"])),
    "pred/meas": (9, lambda row: ratio(row["predicted_seconds"], row["seconds"])),
    "words sent": (13, lambda row: f"{row['words_sent'] or 0:,}"),
    "sha256": (8, lambda row: f"{(row['sha256'] or '-')[:8]:>8}"),
}

Lines = Mapping[str, Mapping[int, float]]  # seconds by bytes, by algorithm


class Crossover(NamedTuple):
    """From `bytes` on, `after` is faster than `before`, which was the fastest."""

    bytes: float
    before: str
    after: str


def crossovers(lines: Lines) -> list[Crossover]:
    """Find where the fastest algorithm changes, on straight lines between points."""
    found = []
    sizes = sorted(set.intersection(*(set(line) for line in lines.values())))
    fastest = [min(lines, key=lambda name: lines[name][size]) for size in sizes]
    for i, (before, after) in enumerate(zip(fastest, fastest[1:], strict=False)):
        if before == after:
            continue
        low, high = sizes[i], sizes[i + 1]
        lead = math.log(lines[after][low] / lines[before][low])
        lag = math.log(lines[before][high] / lines[after][high])
        share = lead / (lead + lag) if lead + lag else 0.5
        found.append(Crossover(low * (high / low) ** share, before, after))
    return found


@contextmanager
def chart(path: Path, among: Sequence[str]) -> Iterator[Writer]:
    """Collect rows; draw a panel for each kind of buffer when the summary comes.

    Crossovers are sought among the algorithms named.
    """
    rows: list[Row] = []
    yield Writer(rows.append, lambda summary: draw(path, rows, among))


def draw(path: Path, rows: Sequence[Row], among: Sequence[str]) -> None:
    from matplotlib.figure import Figure

    kinds = list(dict.fromkeys(row["registered"] for row in rows))
    width = 5.6 * len(kinds) + 1.6
    figure = Figure(figsize=(width, 4.4), layout="constrained")
    panels = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
    names = list(dict.fromkeys(row["algorithm"] for row in rows))
    for axes, kind in zip(panels, kinds, strict=True):
        some = [row for row in rows if row["registered"] == kind]
        title = f"{'registered' if kind else 'plain'} buffers, p = {some[0]['p']}"
        panel(axes, title, some, names, among)
    panels[0].set_ylabel("seconds")
    handles, labels = panels[0].get_legend_handles_labels()
    handles += panels[0].plot([], [], "--", color="gray")
    labels.append("predicted")
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    save(figure, path)


def panel(
    axes: Any, title: str, rows: Sequence[Row], names: list[str], among: Sequence[str]
) -> None:
    lines: dict[str, dict[int, float]] = {}
    for number, name in enumerate(names):
        mine = sorted(
            (row for row in rows if row["algorithm"] == name),
            key=lambda row: row["bytes"],
        )
        sizes = [row["bytes"] for row in mine]
        measured = [row["seconds"] for row in mine]
        expected = [row["predicted_seconds"] for row in mine]
        style = {"color": f"C{number}", "linewidth": 1.4}
        axes.plot(sizes, measured, "o-", markersize=3.5, label=name, **style)
        if None not in expected:
            axes.plot(sizes, expected, "--", alpha=0.6, **style)
        if name in among:
            lines[name] = dict(zip(sizes, measured, strict=True))
    for cross in crossovers(lines) if lines else ():
        axes.axvline(cross.bytes, color="gray", linestyle=":", linewidth=1)
        axes.annotate(
            f"{cross.before} → {cross.after}",
            (cross.bytes, 0.02),
            xycoords=("data", "axes fraction"),
            rotation=90,
            fontsize=7,
            ha="right",
        )
    axes.set(title=title, xlabel="bytes a rank", xscale="log", yscale="log")
    axes.grid(alpha=0.3, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
