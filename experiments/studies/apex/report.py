"""Table, summary and figure of apex.py."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from lab.writing import flatten_rows

from dml.figures import style as figures
from dml.figures.style import Panel
from dml.runs.results import Run
from dml.runs.writers import Columns, Row, Writer, collector

COLUMNS: Columns = {
    "method": (13, "{method}"),
    "updates": (8, "{updates:,.0f}"),
    "by seed": (32, "{updates_by_seed}"),
    "frames": (8, "{frames:,.0f}"),
}


def summarize(rows: Sequence[Row]) -> Row:
    """Return the flat summary by method."""
    return flatten_rows(rows, "{method}_{key}", "updates", "frames", "reached")


def conclude(run: Run) -> str:
    """Return the median number of updates to the return by method."""
    texts = [
        f"{row['method']} {row['updates']:,.0f}"
        if row["updates"] is not None
        else f"{row['method']} never"
        for row in run.rows
    ]
    return f"Updates to the return (median of seeds): {', '.join(texts)}."


def chart(path: Path) -> AbstractContextManager[Writer]:
    """Collect rows; draw them when the summary is written."""
    return collector(lambda rows, _: draw(path, rows))


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw the share of trainings that reached the return by number of updates."""
    curves = {}
    for row in rows:
        reached = sorted(value for value in row["updates_by_seed"] if value)
        if reached:
            shares = [(k + 1) / row["seeds"] for k in range(len(reached))]
            curves[row["method"]] = ([0, *reached], [0, *shares])
    if curves:
        panel = Panel("trainings at the return", curves, "updates", "share")
        figures.panels(path / "updates", [panel])
