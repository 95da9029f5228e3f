"""The rows, table, summary and figures of softsync.py."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from server_runs import Ran

from dml.metrics import figures, server_figure
from dml.metrics.figures import Panel
from dml.metrics.writers import Row

POINT = 0.01  # of the error: a rate within it of the best is as good


class Case(NamedTuple):
    """One run: hard sync where n is 0."""

    n: int
    alpha: float
    damped: bool
    ran: Ran

    @property
    def name(self) -> str:
        rate = "alpha0/tau" if self.damped else "alpha0"
        return f"{self.n}-softsync {rate}" if self.n else f"hard sync {self.alpha:g}"

    @property
    def error(self) -> float:
        return 1 - (self.ran.summary["accuracy"] or 0.0)

    @property
    def beyond(self) -> float:
        """Return the share of gradients that are staler than 2n."""
        counts = self.ran.staleness
        return float(counts[2 * self.n + 1 :].sum() / (counts.sum() or 1))


COLUMNS = {
    "way": (22, "{way}"),
    "rate": (6, "{rate:g}"),
    "test error": (10, "{error:.1%}"),
    "objective": (9, lambda row: f"{row['objective'] or math.inf:.4f}"),
    "updates": (7, "{updates:,.0f}"),
    "seconds": (8, "{seconds:,.1f}"),
    "tau": (6, "{staleness_mean:.2f}"),
    "most": (4, "{staleness_max}"),
    "P(tau>2n)": (9, "{beyond:.1e}"),
    "idle": (5, "{idle_share:.1%}"),
}


def row(case: Case) -> Row:
    """Return what the table says of a case."""
    return case.ran.summary | {
        "way": case.name,
        "rate": case.alpha,
        "error": case.error,
        "beyond": case.beyond,
        "staleness": case.ran.staleness.tolist(),
    }


def lowest(cases: Sequence[Case]) -> float:
    """Return the lowest rate that is as good as the best."""
    best = min(case.error for case in cases)
    return min(case.alpha for case in cases if case.error <= best + POINT)


def summarised(cases: Sequence[Case], alpha0: float) -> dict[str, Any]:
    """Return the flat summary: errors, mean staleness and stale shares by n."""
    hard = next(case for case in cases if not case.n and case.alpha == alpha0)
    summary: dict[str, Any] = {"alpha0": alpha0, "hard_sync_error": hard.error}
    for case in (case for case in cases if case.n):
        key = f"{case.n}_softsync_{'damped' if case.damped else 'fixed'}"
        summary[f"{key}_error"] = case.error
        summary[f"{key}_tau"] = case.ran.summary["staleness_mean"]
        summary[f"{key}_beyond_2n"] = case.beyond
    return summary


def drawn(path: Path, cases: Sequence[Case], alpha0: float) -> None:
    """Draw the errors by clocks and seconds, and how stale gradients are."""
    shown = [case for case in cases if case.n or case.alpha == alpha0]
    panels = [
        Panel(x, {case.name: (case.ran.curves[x], errors(case)) for case in shown}, *xy)
        for x, xy in (
            ("clocks", ("clocks", "test error")),
            ("seconds", ("seconds", "test error")),
        )
    ]
    figures.panels(path / "error", panels)
    stale = [case for case in cases if case.n and case.damped]
    server_figure.histograms(
        path / "staleness",
        {case.name: case.ran.staleness for case in stale},
        {case.name: (case.n, 2 * case.n) for case in stale},
    )


def errors(case: Case) -> list[float]:
    return (1 - np.array(case.ran.curves["accuracy"])).tolist()
