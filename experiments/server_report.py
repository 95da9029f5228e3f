"""A run on parameter servers in; rows an update, a flat summary and figures out."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import server_runs
from server_runs import Ran

from dml.metrics import figures, server_figure
from dml.metrics.figures import Panel
from dml.metrics.writers import Columns, cell, line

COLUMNS: Columns = {  # of a run, in the tables of studies
    "updates": (7, "{updates:,.0f}"),
    "seconds": (8, "{seconds:,.1f}"),
    "to target": (9, "{seconds_to_target:,.1f}"),
    "stale": (6, "{staleness_mean:.2f}"),
    "most": (4, "{staleness_max}"),
    "late": (5, "{late:,}"),
    "idle": (5, "{idle_share:.1%}"),
    "words": (12, "{words_sent:,}"),
}
LARGEST = 1e6  # of what a panel shows
COUNTS = ("worker", "clock", "staleness", "rows", "late", "server")


def rows(found: Ran) -> Iterator[dict[str, Any]]:
    """Yield a row a gradient and server, and which update of that server it was in."""
    columns = {
        name: found.log[name].astype(int) if name in COUNTS else found.log[name]
        for name in server_runs.COLUMNS
    }
    lines = zip(*(column.tolist() for column in columns.values()), strict=True)
    for number, values in enumerate(lines, 1):
        yield {"update": number} | dict(zip(columns, values, strict=True))


def summarised(found: Ran) -> dict[str, Any]:
    """Return the run's numbers, the histogram of staleness and a hash of the table."""
    table_TxD = found.collected.table
    offered = found.summary["offered"]
    return found.summary | {
        "sifted_share": found.summary["sifted"] / offered if offered else 0.0,
        "staleness": found.staleness.tolist(),
        "sha256": hashlib.sha256(table_TxD.tobytes()).hexdigest(),
    }


def ends(summary: Mapping[str, Any]) -> str:
    """Return two lines about a run that has ended."""
    scores = ("objective", "accuracy", "rmse", "zeros")
    quality = line(summary, *(f"{name} {{{name}:.4f}}" for name in scores))
    return f"{quality}  " + cell(
        summary,
        "table {sha256:.8}\n{updates:,} updates  {late:,} late  "
        "staleness {staleness_mean:.2f}, at most {staleness_max}  "
        "idle {idle_share:.1%}  {words_sent:,} words sent  imbalance {imbalance:.2f}",
    )


def picked(*names: str) -> Columns:
    """Return the named columns of COLUMNS."""
    return {name: COLUMNS[name] for name in names}


def drawn(path: Path, found: Ran) -> None:
    """Draw staleness, the objective by updates and by seconds, and the workers."""
    staleness(path / "staleness", {"gradients": found})
    waits(path / "waiting", {"workers": found})
    named, xs = {"objective": found}, ("updates", "seconds")
    panels = [panel(f"by {x}", named, x, "objective") for x in xs]
    figures.panels(path / "objective", panels)


def staleness(path: Path, named: Mapping[str, Ran]) -> None:
    """Draw the histogram of each run's staleness."""
    server_figure.histograms(path, {name: ran.staleness for name, ran in named.items()})


def waits(path: Path, named: Mapping[str, Ran]) -> None:
    """Draw the computing and waiting of each run's workers."""
    server_figure.waits(path, {name: ran.work for name, ran in named.items()})


def panel(title: str, named: Mapping[str, Ran], x: str, y: str) -> Panel:
    """Return a panel with a curve for each run; one that diverges leaves the limits."""
    series = {
        name: (ran.curves[x], np.clip(ran.curves[y], None, LARGEST))
        for name, ran in named.items()
    }
    return Panel(title, series, x, y)
