"""The console, conclusion and figure of rl.py."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lab.flags import FlagValues

from dml.figures import style as figures
from dml.figures.style import Panel
from dml.runs.results import Run
from dml.runs.writers import Row, cell, line

SMOOTHED = 20  # earlier updates in a moving average of the returns of training


def progress(row: Row) -> str:
    """Return the text of a row for the console."""
    return line(
        row,
        "return {mean_return:.1f}",
        "training return {training_return:.1f}",
        "lag {lag_mean:.2f}",
        "{total_frames:,} frames",
    )


class Names(NamedTuple):
    """Names in the texts of a run: of the unit of time, and of steps."""

    unit: str
    steps: str


def names(values: FlagValues) -> Names:
    """Return the names for a run with these flags."""
    unit = "virtual s" if values.simulate else "s"
    return Names(unit, "clocks" if values.algorithm == "a3c" else "updates")


def summary_text(names: Names, summary: Row) -> str:
    """Return the last lines of the console."""
    traffic = line(
        summary, "{words_sent:,} words sent", "predicted {predicted_words:,}"
    )
    return cell(
        summary,
        "params {sha256:.8}  lag {lag_mean:.2f}, at most {lag_max}  "
        f"{{frames_per_second:,.0f}} frames/{names.unit}\n",
    ) + (traffic or "")


def conclude(names: Names, run: Run) -> str:
    """Return the conclusion of a run."""
    summary = run.summary
    unit = names.unit
    solved = summary["solved_seconds"]
    text = "not solved" if solved is None else f"first solved after {solved:.1f} {unit}"
    return cell(
        summary,
        f"Mean return {{mean_return:.2f}} after {{steps:,}} {names.steps} and "
        f"{{frames:,}} frames in {{elapsed_seconds:.1f}} {unit}; {text}.",
    )


def draw(path: Path, rows: Sequence[Row], summary: Row) -> None:
    """Draw returns by frames and by seconds.

    Args:
      path: Path of the figure, without suffix.
      rows: A row per Step.
      summary: Summary of the run.
    """
    panels = []
    for x, label in (("total_frames", "frames"), ("elapsed_seconds", "seconds")):
        series = {}
        for name, key in (
            ("training", "training_return"),
            ("evaluation", "mean_return"),
        ):
            all_rows = rows if name == "training" else [*rows, summary]
            points = [(row[x], row[key]) for row in all_rows if key in row]
            if points:
                xs, ys = zip(*points, strict=True)
                series[name] = (xs, means(ys)) if name == "training" else (xs, ys)
        panels.append(Panel(f"by {label}", series, label, "mean return"))
    if any(panel.series for panel in panels):
        figures.panels(path, panels)


def means(values: Sequence[float]) -> list[float]:
    """Return the mean of each value and up to SMOOTHED earlier values."""
    windows = [values[max(0, k - SMOOTHED) : k + 1] for k in range(len(values))]
    return [sum(window) / len(window) for window in windows]
