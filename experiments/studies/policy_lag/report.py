"""Table, summary and figures of policy_lag.py."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from lab.claims import grouped, matching
from lab.writing import flatten_rows
import numpy as np

from dml.figures import style as figures
from dml.figures.style import Panel
from dml.runs.results import Run
from dml.runs.writers import Columns, Row, Writer, collector

COLUMNS: Columns = {
    "correction": (10, "{correction}"),
    "lag": (4, "{lag}"),
    "mean return": (11, "{mean_return:.1f}"),
    "±": (6, "{mean_return_error:.1f}"),
    "at the end": (10, "{final_return:.1f}"),
    "± ": (6, "{final_return_error:.1f}"),
}


def summarize(rows: Sequence[Row]) -> Row:
    """Return the flat summary: returns by correction and lag."""
    keys = "mean_return", "mean_return_error", "final_return"
    return flatten_rows(rows, "{correction}_{lag}_{key}", *keys)


def conclude(run: Run) -> str:
    """Return the share of the return that each correction keeps at the largest lag."""
    lags = [row["lag"] for row in run.rows]
    texts = []
    for name, rows in grouped(run.rows, "correction").items():
        first, last = (matching(rows, lag=lag(lags)) for lag in (min, max))
        if first and last and first[0]["mean_return"]:
            share = last[0]["mean_return"] / first[0]["mean_return"]
            texts.append(f"{name} {share:.0%}")
    return (
        f"Share of the mean return at lag {min(lags)} kept at lag {max(lags)}: "
        f"{', '.join(texts) or 'none'}."
    )


def chart(path: Path) -> AbstractContextManager[Writer]:
    """Collect rows; draw them when the summary is written."""
    return collector(lambda rows, _: draw(path, rows))


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw the return by lag, and learning curves with a panel for each lag."""
    series, bands = {}, {}
    for name, group in grouped(rows, "correction").items():
        lags = [row["lag"] for row in group]
        means, errors = (
            np.array([row[key] for row in group])
            for key in ("mean_return", "mean_return_error")
        )
        series[name] = lags, means.tolist()
        bands[name] = (means - errors).tolist(), (means + errors).tolist()
    labels = {"x": "policy lag in updates", "y": "mean return of the training"}
    figures.curves(path / "return_by_lag", series, **labels, bands=bands)
    panels = [curves(lag, group) for lag, group in grouped(rows, "lag").items()]
    figures.panels(path / "curves", panels)


def curves(lag: int, rows: Sequence[Row]) -> Panel:
    """Return the panel of learning curves of a lag, means over the seeds."""
    series = {}
    for row in rows:
        points = len(row["curve"])
        frames = np.arange(1, points + 1) * row["frames"] / points / 1000
        series[row["correction"]] = frames.tolist(), row["curve"]
    return Panel(f"lag of {lag} updates", series, "1000 frames", "mean return")
