"""The conclusion and the figure of kfac.py."""

from collections.abc import Sequence
from pathlib import Path

from lab.claims import grouped

from dml.figures import style as figures
from dml.runs.results import Run
from dml.runs.writers import Row
from studies.kfac.runs import TARGETS


def conclude(run: Run) -> str:
    """Return the equality of the fractions, their memory, and the updates to a loss."""
    tables = grouped(run.rows, "table")
    fractions, trainings = tables["fraction"], tables.get("training", [])
    hashes = len({row["sha256"] for row in fractions})
    equal = "equal bits" if hashes == 1 else f"{hashes} different results"
    texts = [f"All fractions on all ranks have {equal}"]
    most = max(row["ranks"] for row in fractions)
    stored = [row["state_bytes"] for row in fractions if row["ranks"] == most]
    texts.append(
        f"on {most} ranks the largest fraction stores {stored[-1] / stored[0]:.3g} "
        "times the bytes of the smallest"
    )
    for target in TARGETS:
        counts = {}
        for name, rows in grouped(trainings, "name").items():
            found = [row[f"updates_{target:g}"] for row in rows]
            counts[name] = min([count for count in found if count], default=None)
        parts = [f"{name} {count or 'never'}" for name, count in counts.items()]
        texts.append(f"updates to loss {target:g}: {', '.join(parts)}")
    return "; ".join(texts) + "."


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw the words of an update and the bytes of a rank's state by fraction."""
    fractions = [row for row in rows if row["table"] == "fraction"]
    panels = []
    for title, key, unit in (
        ("words sent by all ranks", "words_sent", "words"),
        ("largest state of a rank", "state_bytes", "bytes"),
    ):
        series = {
            f"{size} ranks": (
                [row["fraction"] for row in group],
                [row[key] for row in group],
            )
            for size, group in grouped(fractions, "ranks").items()
            if size > 1
        }
        panels.append(figures.Panel(title, series, "fraction", unit))
    if any(panel.series for panel in panels):
        figures.panels(path, panels)
