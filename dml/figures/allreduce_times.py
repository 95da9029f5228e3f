"""Tables and figures of timed all-reduces: seconds by bytes, with crossovers."""

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from dml.figures.style import drawing, legend, note
from dml.runs.writers import Columns, Row, Writer, collected, scaled


def ratio(above: float | None, below: float) -> str:
    """Return a quotient as text; a dash if it is unknown."""
    return "-" if above is None or not below else f"{above / below:.3g}"


def bus_gigabytes(row: Row) -> float:
    """Return the least traffic of a rank's link that an all-reduce needs."""
    return 2 * (row["p"] - 1) / row["p"] * row["bytes"] / 1e9


COLUMNS: Columns = {
    "buffer": (10, lambda row: "registered" if row["registered"] else "plain"),
    "bytes": (11, "{bytes:,}"),
    "algorithm": (16, "{algorithm}"),
    "ms": (9, scaled("seconds", 1e3, ".4f")),
    "bus GB/s": (8, lambda row: ratio(bus_gigabytes(row), row["seconds"])),
    "x native": (8, lambda row: ratio(row["native_seconds"], row["seconds"])),
    "pred/meas": (9, lambda row: ratio(row["predicted_seconds"], row["seconds"])),
    "words sent": (13, lambda row: f"{row['words_sent'] or 0:,}"),
    "sha256": (8, lambda row: f"{(row['sha256'] or '-')[:8]:>8}"),
}

Lines = Mapping[str, Mapping[int, float]]  # seconds by bytes, by algorithm


class Crossover(NamedTuple):
    """From `bytes` on, `after` is the fastest; below it, `before` is."""

    bytes: float
    before: str
    after: str


def crossovers(lines: Lines) -> list[Crossover]:
    """Return where the fastest algorithm changes, by interpolation of logarithms."""
    crossings = []
    common = set.intersection(*(set(line) for line in lines.values()))
    sizes = sorted(size for size in common if size > 0)
    fastest = [min(lines, key=lambda name: lines[name][size]) for size in sizes]
    for i, (before, after) in enumerate(zip(fastest, fastest[1:], strict=False)):
        if before == after:
            continue
        low, high = sizes[i], sizes[i + 1]
        lead = math.log(lines[after][low] / lines[before][low])
        lag = math.log(lines[before][high] / lines[after][high])
        share = lead / (lead + lag) if lead + lag else 0.5
        crossings.append(Crossover(low * (high / low) ** share, before, after))
    return crossings


def chart(path: Path, among: Sequence[str]) -> AbstractContextManager[Writer]:
    """Collect rows; draw a panel for each kind of buffer at the end.

    Crossovers are those between the named algorithms.
    """
    return collected(lambda rows, _: draw(path, rows, among))


def draw(path: Path, rows: Sequence[Row], among: Sequence[str]) -> None:
    """Draw measured and predicted seconds by bytes."""
    kinds = list(dict.fromkeys(row["registered"] for row in rows))
    names = list(dict.fromkeys(row["algorithm"] for row in rows))
    size = (5.6 * len(kinds) + 1.6, 4.4)
    with drawing(path, 1, len(kinds), size=size, sharey=True) as (figure, panels):
        for axes, kind in zip(panels, kinds, strict=True):
            selected = [row for row in rows if row["registered"] == kind]
            title = (
                f"{'registered' if kind else 'plain'} buffers, p = {selected[0]['p']}"
            )
            panel(axes, title, selected, names, among)
        panels[0].set_ylabel("seconds")
        panels[0].plot([], [], "--", color="gray", label="predicted")
        legend(figure)


def panel(
    axes: Any, title: str, rows: Sequence[Row], names: list[str], among: Sequence[str]
) -> None:
    """Draw measured and predicted seconds by bytes, and crossovers, in a panel.

    Args:
      axes: The panel.
      title: Title of the panel.
      rows: Rows of one kind of buffer.
      names: Algorithms, in the order of their colours.
      among: Algorithms whose crossovers are marked.
    """
    lines: dict[str, dict[int, float]] = {}
    for number, name in enumerate(names):
        selected = sorted(
            (row for row in rows if row["algorithm"] == name),
            key=lambda row: row["bytes"],
        )
        sizes = [row["bytes"] for row in selected]
        measured = [row["seconds"] for row in selected]
        expected = [row["predicted_seconds"] for row in selected]
        axes.plot(sizes, measured, "o-", color=f"C{number}", label=name)
        if None not in expected:
            axes.plot(sizes, expected, "--", color=f"C{number}", alpha=0.6)
        if name in among:
            lines[name] = dict(zip(sizes, measured, strict=True))
    for cross in crossovers(lines) if lines else ():
        axes.axvline(cross.bytes, color="gray", linestyle=":", linewidth=1)
        note(axes, f"{cross.before} → {cross.after}", cross.bytes, va="bottom")
    axes.set(title=title, xlabel="bytes per rank", xscale="log", yscale="log")
