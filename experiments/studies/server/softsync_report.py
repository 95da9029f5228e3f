"""The cases, table, summary and figures of softsync.py."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dml.figures import server as server_figure
from dml.figures import style as figures
from dml.figures.style import Panel
from dml.runs.results import Run
from dml.runs.writers import Columns
from studies.server.comparison import Case
from studies.server.runs import COLUMNS as NUMBERS
from studies.server.runs import RunResult, select_columns

POINT = 0.01  # one percentage point; smaller differences of test errors are ignored
COLUMNS: Columns = {
    "strategy": (22, "{strategy}"),
    "test error": (10, "{error:.1%}"),
    "objective": (9, lambda row: f"{row['objective'] or math.inf:.4f}"),
    "tau": NUMBERS["stale"],  # mean staleness
    **select_columns("max"),
    "P(tau>2n)": (9, "{beyond:.1e}"),
    **select_columns("idle", "seconds", "updates"),
    "rate": (6, "{rate:g}"),
}


def case(result: RunResult, n: int, alpha: float, scaled: bool) -> Case:
    """Return the case of n-softsync, or of hard sync.

    Args:
      result: Results of the run.
      n: Number n of n-softsync; 0: hard sync.
      alpha: Learning rate.
      scaled: Whether the rate of a gradient is divided by its staleness tau.
    """
    counts = result.staleness
    rate = "alpha0/tau" if scaled else "alpha0"
    row = {
        "strategy": f"{n}-softsync {rate}" if n else f"hard sync {alpha:g}",
        "n": n,
        "scaled": scaled,
        "rate": alpha,
        "error": 1 - (result.summary["accuracy"] or 0.0),
        "beyond": float(counts[2 * n + 1 :].sum() / (counts.sum() or 1)),
        "staleness": counts.tolist(),
    }
    return Case(result.summary | row, result)


def lowest_good_rate(cases: Sequence[Case]) -> float:
    """Return the lowest rate with an error within POINT of the least; 0: no cases."""
    least = min((case.row["error"] for case in cases), default=0.0)
    rates = (case.row["rate"] for case in cases if case.row["error"] <= least + POINT)
    return min(rates, default=0.0)


def hard_sync(cases: Sequence[Case]) -> Case:
    """Return the case of hard sync at alpha0."""
    hard = [case for case in cases if not case.row["n"]]
    alpha0 = lowest_good_rate(hard)
    return next(case for case in hard if case.row["rate"] == alpha0)


def summarize(cases: Sequence[Case]) -> dict[str, Any]:
    """Return the flat summary: alpha0, and error and staleness of n-softsync.

    beyond_2n is the share of the gradients that are staler than 2n.
    """
    hard = hard_sync(cases).row
    summary = {"alpha0": hard["rate"], "hard_sync_error": hard["error"]}
    for row in (case.row for case in cases if case.row["n"]):
        key = f"{row['n']}_softsync_{'scaled' if row['scaled'] else 'fixed'}"
        summary[f"{key}_error"] = row["error"]
        summary[f"{key}_tau"] = row["staleness_mean"]
        summary[f"{key}_beyond_2n"] = row["beyond"]
    return summary


def conclude(run: Run) -> str:
    """Return the test errors of the largest n, and of hard synchronous training."""
    rows = run.rows
    error = run.summary["hard_sync_error"]
    text = f"Hard synchronous training has a test error of {error:.1%}"
    soft = [row for row in rows if row["n"]]
    n = max((row["n"] for row in soft), default=0)
    for row in soft:
        if row["n"] == n:
            rate = "scaled by staleness" if row["scaled"] else "fixed"
            text += f"; {n}-softsync at a rate {rate} {row['error']:.1%}"
    return f"{text}."


def draw(path: Path, cases: Sequence[Case]) -> None:
    """Draw the errors by clocks and seconds, and the staleness of gradients."""
    soft = [case for case in cases if case.row["n"]]
    curves = {
        case.row["strategy"]: case.result.curves for case in (hard_sync(cases), *soft)
    }

    def error_panel(x: str) -> Panel:
        series = {
            name: (curve[x], 1 - np.array(curve["accuracy"]))
            for name, curve in curves.items()
        }
        return Panel(x, series, x, "test error")

    panels = [error_panel(x) for x in ("clocks", "seconds")]
    figures.panels(path / "error", panels)
    scaled = {case.row["strategy"]: case for case in soft if case.row["scaled"]}
    server_figure.histograms(
        path / "staleness",
        {name: case.result.staleness for name, case in scaled.items()},
        {name: (case.row["n"], 2 * case.row["n"]) for name, case in scaled.items()},
    )
