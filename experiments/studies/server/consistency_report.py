"""The cases, table, summary and figures of consistency.py."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dml.figures import style as figures
from dml.runs.writers import Columns
from studies.server.comparison import Case
from studies.server.runs import Ran, panel, picked, reached, staleness, waits

NEAR = 1.02  # default target as a ratio to the last objective of the first run
BOUNDED = ("ssp", "essp")
COLUMNS: Columns = {
    "consistency": (11, "{consistency}"),
    "delay": (25, "{delay}"),
    "objective": (
        9,
        lambda row: f"{row['objective']:.4f}" if row["objective"] else "diverged",
    ),
    **picked("updates", "seconds", "to target", "stale", "most", "late", "idle"),
}


def case(ran: Ran, way: str, law: str, target: float) -> Case:
    """Return the case of a consistency and a delay distribution."""
    row = {
        "consistency": way,
        "delay": law,
        **ran.summary,
        "objective_at_start": ran.curves["objective"][0],
        "seconds_to_target": reached(ran, "objective", target),
        "staleness": ran.staleness.tolist(),
    }
    return Case(row, ran)


def last_objective(ran: Ran) -> float:
    """Return the objective at the end; infinite if it is not finite."""
    last = ran.curves["objective"][-1]
    return last if math.isfinite(last) else math.inf


def by_law(cases: Sequence[Case]) -> dict[str, dict[str, Ran]]:
    """Return the runs by delay distribution and by consistency."""
    runs: dict[str, dict[str, Ran]] = {}
    for case in cases:
        runs.setdefault(case.row["delay"], {})[case.row["consistency"]] = case.ran
    return runs


def summarised(cases: Sequence[Case]) -> dict[str, Any]:
    """Return the flat summary: four numbers of each consistency and delay."""
    return {
        f"{way}_{number}".replace(":", "_") + f"_{name}": ran.summary[name]
        for number, runs_by_consistency in enumerate(by_law(cases).values(), 1)
        for way, ran in runs_by_consistency.items()
        for name in ("objective", "seconds", "staleness_mean", "idle_share")
    }


def drawn(path: Path, cases: Sequence[Case]) -> None:
    """Draw the objective by clocks, updates and seconds; waiting and staleness."""
    start = cases[0].ran.curves["objective"][0]
    least = min(start, *(last_objective(case.ran) for case in cases))
    distributions = by_law(cases)
    look = {
        "within": (0.95 * least, 1.3 * start),
        "dashed": [
            way for way in next(iter(distributions.values())) if way.startswith("essp")
        ],
    }

    def draw(name: str, distributions: dict[str, dict[str, Ran]], x: str) -> None:
        panels = [
            panel(law, runs_by_consistency, x, "objective")
            for law, runs_by_consistency in distributions.items()
        ]
        figures.panels(path / name, panels, **look)

    for x in ("clocks", "updates", "seconds"):
        draw(f"objective_{x}", distributions, x)
    bounded = [c for c in cases if c.row["consistency"].split(":")[0] in BOUNDED]
    if bounded:
        draw("who_diverges", by_law(bounded), "clocks")
    for number, runs_by_consistency in enumerate(distributions.values(), 1):
        waits(path / f"waiting_{number}", runs_by_consistency)
        staleness(path / f"staleness_{number}", runs_by_consistency)
