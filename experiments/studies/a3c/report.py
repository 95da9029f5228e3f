"""Table, summary and figure of a3c.py."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from lab.writing import flatten_rows

from dml.figures import style as figures
from dml.figures.style import Panel
from dml.runs.results import Run
from dml.runs.writers import Columns, Row, Writer, collector

COLUMNS: Columns = {
    "workers": (7, "{workers}"),
    "virtual s": (9, "{seconds:.1f}"),
    "frames": (8, "{frames:,.0f}"),
    "updates": (7, "{updates:,.0f}"),
    "staleness": (9, "{staleness_mean:.2f}"),
    "largest": (7, "{staleness_max}"),
}


def summarize(rows: Sequence[Row]) -> Row:
    """Return the flat summary by number of workers."""
    keys = "seconds", "frames", "updates", "staleness_mean", "staleness_max"
    return flatten_rows(rows, "workers_{workers}_{key}", *keys)


def conclude(run: Run) -> str:
    """Return the virtual seconds to the return by number of workers."""
    texts = [
        f"{row['workers']} in {row['seconds']:.3g}"
        if row["seconds"] is not None
        else f"{row['workers']} never"
        for row in run.rows
    ]
    return f"Virtual seconds to the return, by workers: {', '.join(texts)}."


def chart(path: Path) -> AbstractContextManager[Writer]:
    """Collect rows; draw them when the summary is written."""
    return collector(lambda rows, _: draw(path, rows))


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw seconds and frames to the return by workers; no figure without any."""
    reached = [row for row in rows if row["seconds"] is not None]
    if not reached:
        return
    workers = [row["workers"] for row in reached]
    panels = []
    for key, label in (("seconds", "virtual seconds"), ("frames", "frames")):
        values = [row[key] for row in reached]
        panels.append(
            Panel(f"{label} to the return", {key: (workers, values)}, "workers", label)
        )
    figures.panels(path / "workers", panels, log="xy")
