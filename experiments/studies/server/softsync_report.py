"""The cases, table, summary and figures of softsync.py."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dml.figures import server as server_figure
from dml.figures import style as figures
from dml.figures.style import Panel
from dml.runs.writers import Columns
from studies.server.comparison import Case
from studies.server.runs import COLUMNS as NUMBERS
from studies.server.runs import Ran, picked

POINT = 0.01  # test errors that differ by less count as equal
COLUMNS: Columns = {
    "way": (22, "{way}"),
    "rate": (6, "{rate:g}"),
    "test error": (10, "{error:.1%}"),
    "objective": (9, lambda row: f"{row['objective'] or math.inf:.4f}"),
    **picked("updates", "seconds"),
    "tau": NUMBERS["stale"],
    **picked("most"),
    "P(tau>2n)": (9, "{beyond:.1e}"),
    **picked("idle"),
}


def case(ran: Ran, n: int, alpha: float, damped: bool) -> Case:
    """Return the case of n-softsync, or of hard sync where n is 0."""
    counts, rate = ran.staleness, "alpha0/tau" if damped else "alpha0"
    row = {
        "way": f"{n}-softsync {rate}" if n else f"hard sync {alpha:g}",
        "n": n,
        "damped": damped,
        "rate": alpha,
        "error": 1 - (ran.summary["accuracy"] or 0.0),
        "beyond": float(counts[2 * n + 1 :].sum() / (counts.sum() or 1)),
        "staleness": counts.tolist(),
    }
    return Case(ran.summary | row, ran)


def lowest(cases: Sequence[Case]) -> float:
    """Return the lowest rate with an error within POINT of the best; 0: no cases."""
    best = min((case.row["error"] for case in cases), default=0.0)
    good = (case.row["rate"] for case in cases if case.row["error"] <= best + POINT)
    return min(good, default=0.0)


def hard_sync(cases: Sequence[Case]) -> Case:
    """Return the case of hard sync at alpha0."""
    hard = [case for case in cases if not case.row["n"]]
    return next(case for case in hard if case.row["rate"] == lowest(hard))


def summarised(cases: Sequence[Case]) -> dict[str, Any]:
    """Return the flat summary: errors, mean staleness and stale shares by n."""
    hard = hard_sync(cases).row
    summary = {"alpha0": hard["rate"], "hard_sync_error": hard["error"]}
    for row in (case.row for case in cases if case.row["n"]):
        key = f"{row['n']}_softsync_{'damped' if row['damped'] else 'fixed'}"
        summary[f"{key}_error"] = row["error"]
        summary[f"{key}_tau"] = row["staleness_mean"]
        summary[f"{key}_beyond_2n"] = row["beyond"]
    return summary


def drawn(path: Path, cases: Sequence[Case]) -> None:
    """Draw the errors by clocks and seconds, and the staleness of gradients."""
    soft = [case for case in cases if case.row["n"]]
    curves = {case.row["way"]: case.ran.curves for case in (hard_sync(cases), *soft)}
    panels = [
        Panel(
            x,
            {
                name: (of[x], 1 - np.array(of["accuracy"]))
                for name, of in curves.items()
            },
            x,
            "test error",
        )
        for x in ("clocks", "seconds")
    ]
    figures.panels(path / "error", panels)
    stale = {case.row["way"]: case for case in soft if case.row["damped"]}
    server_figure.histograms(
        path / "staleness",
        {name: case.ran.staleness for name, case in stale.items()},
        {name: (case.row["n"], 2 * case.row["n"]) for name, case in stale.items()},
    )
