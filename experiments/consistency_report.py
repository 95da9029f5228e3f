"""The rows, table, summary and figures of consistency.py."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from server_report import panel
from server_runs import Ran, reached

from dml.metrics import figures, server_figure
from dml.metrics.figures import Panel
from dml.metrics.writers import Columns

NEAR = 1.02  # of the last objective of the first run: the default target


class Case(NamedTuple):
    """One run."""

    law: str
    way: str
    ran: Ran

    @property
    def objective(self) -> float:
        """Return the last objective; infinite where it is no number."""
        last = self.ran.curves["objective"][-1]
        return last if math.isfinite(last) else math.inf


COLUMNS: Columns = {
    "consistency": (11, "{consistency}"),
    "delay": (25, "{delay}"),
    "objective": (
        9,
        lambda row: f"{row['objective']:.4f}" if row["objective"] else "diverged",
    ),
    "updates": (7, "{updates:,.0f}"),
    "seconds": (8, "{seconds:,.1f}"),
    "to target": (9, "{seconds_to_target:,.1f}"),
    "stale": (6, "{staleness_mean:.2f}"),
    "most": (4, "{staleness_max}"),
    "late": (5, "{late:,}"),
    "idle": (5, "{idle_share:.1%}"),
}


def row(cases: Sequence[Case], target: float) -> dict[str, Any]:
    """Return what the table says of the last case; the first one sets the target."""
    law, way, ran = cases[-1]
    target = target or NEAR * cases[0].objective
    return {
        "consistency": way,
        "delay": law,
        **ran.summary,
        "objective_at_start": ran.curves["objective"][0],
        "seconds_to_target": reached(ran, "objective", target),
        "staleness": ran.staleness.tolist(),
    }


def summarised(cases: Sequence[Case]) -> dict[str, Any]:
    """Return the flat summary: four numbers of each consistency and delay."""
    summary: dict[str, Any] = {}
    for number, law in enumerate(laws(cases), 1):
        for case in (case for case in cases if case.law == law):
            key = f"{case.way}_{number}".replace(":", "_")
            for name in ("objective", "seconds", "staleness_mean", "idle_share"):
                summary[f"{key}_{name}"] = case.ran.summary[name]
    return summary


def laws(cases: Sequence[Case]) -> list[str]:
    return list(dict.fromkeys(case.law for case in cases))


def drawn(path: Path, cases: Sequence[Case]) -> None:
    """Draw the objective three ways, who diverges, and each delay's workers."""
    start = cases[0].ran.curves["objective"][0]
    least = min(start, *(case.objective for case in cases))
    look = {
        "within": (0.95 * least, 1.3 * start),
        "dashed": [case.way for case in cases if case.way.startswith("essp")],
    }
    for x in ("clocks", "updates", "seconds"):
        figures.panels(path / f"objective_{x}", panels(cases, x), **look)
    bounded = [case for case in cases if case.way.split(":")[0] in ("ssp", "essp")]
    if bounded:
        figures.panels(path / "who_diverges", panels(bounded, "clocks"), **look)
    for number, law in enumerate(laws(cases), 1):
        mine = {case.way: case.ran for case in cases if case.law == law}
        server_figure.waits(
            path / f"waiting_{number}", {way: ran.work for way, ran in mine.items()}
        )
        server_figure.histograms(
            path / f"staleness_{number}",
            {way: ran.staleness for way, ran in mine.items()},
        )


def panels(cases: Sequence[Case], x: str) -> list[Panel]:
    """Return a panel for each delay distribution."""
    named = {
        law: {case.way: case.ran for case in cases if case.law == law}
        for law in laws(cases)
    }
    return [panel(law, runs, x, "objective") for law, runs in named.items()]
