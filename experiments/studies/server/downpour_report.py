"""The cases, table, summary and figures of downpour.py."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dml.figures import style as figures
from dml.runs.writers import Columns
from studies.server.comparison import Case
from studies.server.runs import Ran, panel, picked, reached, waits

COLUMNS: Columns = {
    "way": (16, "{way}"),
    "rate": (6, "{rate:g}"),
    "accuracy": (8, "{accuracy:.4f}"),
    **picked("to target", "seconds", "updates", "stale", "idle", "words"),
}


def case(ran: Ran, way: str, rate: float, target: float) -> Case:
    """Return the case of a strategy and its rate."""
    row = {
        "way": way,
        "rate": rate,
        "accuracy": ran.summary["accuracy"] or 0.0,
        "seconds_to_target": reached(ran, "accuracy", target, falls=False),
    }
    return Case(ran.summary | row, ran)


def best(cases: Sequence[Case]) -> dict[str, Case]:
    """Return each strategy's run that is fastest to the target, or most accurate."""

    def order(case: Case) -> tuple[float, float]:
        seconds = case.row["seconds_to_target"]
        return math.inf if seconds is None else seconds, -case.row["accuracy"]

    strategies = dict.fromkeys(case.row["way"] for case in cases)
    return {
        way: min((case for case in cases if case.row["way"] == way), key=order)
        for way in strategies
    }


def summarised(cases: Sequence[Case]) -> dict[str, Any]:
    """Return the flat summary of each strategy at its best rate."""
    return {
        f"{way.lower().replace(' ', '_')}_{name}": case.row[name]
        for way, case in best(cases).items()
        for name in ("accuracy", "rate", "seconds_to_target")
    }


def drawn(path: Path, cases: Sequence[Case]) -> None:
    """Draw the accuracy of each strategy at its best rate, and its workers."""
    chosen = best(cases).items()
    named = {f"{way}, {case.row['rate']:g}": case.ran for way, case in chosen}
    panels = [panel(f"by {x}", named, x, "accuracy") for x in ("seconds", "updates")]
    figures.panels(path / "accuracy", panels)
    waits(path / "waiting", named)
