"""Tables and figures of timed all-reduces: seconds by bytes, with crossovers."""

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from dml.figures.style import drawing, legend, note
from dml.runs.writers import Columns, Row, Writer, collector, scaled_cell


def words_text(row: Row) -> str:
    """Return the counted words, or why there are none."""
    if row["words_sent"] is None:
        return "not counted"
    if not row["words_sent"] and row["p"] > 1:
        return "shared memory"
    return f"{row['words_sent']:,}"


def ratio(above: float | None, below: float) -> str:
    """Return above / below as text; a dash if `above` is None or `below` is 0."""
    return "-" if above is None or not below else f"{above / below:.3g}"


def bus_gigabytes(row: Row) -> float:
    """Return the minimum gigabytes that each rank must send in an all-reduce."""
    return 2 * (row["p"] - 1) / row["p"] * row["bytes"] / 1e9


COLUMNS: Columns = {
    "buffer": (10, lambda row: "registered" if row["registered"] else "plain"),
    "bytes": (11, "{bytes:,}"),
    "algorithm": (16, "{algorithm}"),
    "ms": (9, scaled_cell("seconds", 1e3, ".4f")),
    "x native": (8, lambda row: ratio(row["native_seconds"], row["seconds"])),
    "words sent": (13, lambda row: words_text(row)),
    "bus GB/s": (8, lambda row: ratio(bus_gigabytes(row), row["seconds"])),
    "pred/meas": (9, lambda row: ratio(row["predicted_seconds"], row["seconds"])),
    "sha256": (8, lambda row: f"{(row['sha256'] or '-')[:8]:>8}"),
}

Lines = Mapping[str, Mapping[int, float]]  # seconds by bytes, by algorithm


class Crossover(NamedTuple):
    """The size at which the fastest algorithm changes.

    Attributes:
      bytes: Size of the buffer.
      before: Fastest algorithm for smaller buffers.
      after: Fastest algorithm for larger buffers.
    """

    bytes: float
    before: str
    after: str


def crossovers(lines: Lines) -> list[Crossover]:
    """Return the sizes where the fastest algorithm changes.

    The logarithm of the seconds is interpolated linearly in the logarithm of the bytes.
    """
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


def chart(path: Path, compared: Sequence[str]) -> AbstractContextManager[Writer]:
    """Collect rows; draw a panel for registered and one for plain buffers at the end.

    Args:
      path: Path of the figure, without suffix.
      compared: Names of the algorithms whose crossovers are marked.
    """
    return collector(lambda rows, _: draw(path, rows, compared))


def draw(path: Path, rows: Sequence[Row], compared: Sequence[str]) -> None:
    """Draw measured and predicted seconds by bytes."""
    buffer_types = list(dict.fromkeys(row["registered"] for row in rows))
    names = list(dict.fromkeys(row["algorithm"] for row in rows))
    size = (5.6 * len(buffer_types) + 1.6, 4.4)
    subplots = drawing(path, 1, len(buffer_types), size=size, sharey=True)
    with subplots as (figure, panels):
        for axes, registered in zip(panels, buffer_types, strict=True):
            selected = [row for row in rows if row["registered"] == registered]
            buffers = "registered buffers" if registered else "plain buffers"
            title = f"{buffers}, p = {selected[0]['p']}"
            panel(axes, title, selected, names, compared)
        panels[0].set_ylabel("seconds")
        panels[0].plot([], [], "--", color="gray", label="predicted")
        legend(figure)


def panel(
    axes: Any,
    title: str,
    rows: Sequence[Row],
    names: list[str],
    compared: Sequence[str],
) -> None:
    """Draw measured and predicted seconds by bytes, and crossovers, in a panel.

    Args:
      axes: The panel.
      title: Title of the panel.
      rows: Rows of registered or of plain buffers.
      names: Algorithms, in the order of their colours.
      compared: Algorithms whose crossovers are marked.
    """
    lines: dict[str, dict[int, float]] = {}
    for index, name in enumerate(names):
        selected = sorted(
            (row for row in rows if row["algorithm"] == name),
            key=lambda row: row["bytes"],
        )
        sizes = [row["bytes"] for row in selected]
        measured = [row["seconds"] for row in selected]
        expected = [row["predicted_seconds"] for row in selected]
        axes.plot(sizes, measured, "o-", color=f"C{index}", label=name)
        if None not in expected:
            axes.plot(sizes, expected, "--", color=f"C{index}", alpha=0.6)
        if name in compared:
            lines[name] = dict(zip(sizes, measured, strict=True))
    for crossover in crossovers(lines) if lines else ():
        axes.axvline(crossover.bytes, color="gray", linestyle=":", linewidth=1)
        note(
            axes,
            f"{crossover.before} → {crossover.after}",
            crossover.bytes,
            va="bottom",
        )
    axes.set(title=title, xlabel="bytes per rank", xscale="log", yscale="log")
