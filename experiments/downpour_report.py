"""The rows, table, summary and figures of downpour.py."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from server_report import panel
from server_runs import Ran, reached

from dml.metrics import figures, server_figure
from dml.metrics.writers import Row


class Case(NamedTuple):
    """One run."""

    way: str
    rate: float
    ran: Ran
    target: float

    @property
    def accuracy(self) -> float:
        return self.ran.summary["accuracy"] or 0.0

    @property
    def seconds(self) -> float | None:
        return reached(self.ran, "accuracy", self.target, falls=False)


def best(cases: Sequence[Case]) -> dict[str, Case]:
    """Return of each way the run that is first at the target, or most accurate."""

    def order(case: Case) -> tuple[float, float]:
        return math.inf if case.seconds is None else case.seconds, -case.accuracy

    found: dict[str, Case] = {}
    for case in sorted(cases, key=order):
        found.setdefault(case.way, case)
    return {way: found[way] for way in dict.fromkeys(case.way for case in cases)}


COLUMNS = {
    "way": (16, "{way}"),
    "rate": (6, "{rate:g}"),
    "accuracy": (8, "{accuracy:.4f}"),
    "to target": (9, "{seconds_to_target:,.1f}"),
    "seconds": (8, "{seconds:,.1f}"),
    "updates": (7, "{updates:,.0f}"),
    "stale": (6, "{staleness_mean:.2f}"),
    "idle": (5, "{idle_share:.1%}"),
    "words": (12, "{words_sent:,}"),
}


def time(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:,.1f}"


def row(case: Case) -> Row:
    """Return what the table says of a case."""
    return case.ran.summary | {
        "way": case.way,
        "rate": case.rate,
        "accuracy": case.accuracy,
        "seconds_to_target": case.seconds,
    }


def summarised(chosen: Mapping[str, Case]) -> dict[str, Any]:
    """Return the flat summary of each strategy at its best rate."""
    summary: dict[str, Any] = {}
    for way, case in chosen.items():
        key = way.lower().replace(" ", "_")
        summary[f"{key}_accuracy"] = case.accuracy
        summary[f"{key}_rate"] = case.rate
        summary[f"{key}_seconds_to_target"] = case.seconds
    return summary


def drawn(path: Path, chosen: Mapping[str, Case]) -> None:
    """Draw the accuracy of each way at its best rate, and its workers."""
    named = {f"{way}, {case.rate:g}": case.ran for way, case in chosen.items()}
    panels = [panel(f"by {x}", named, x, "accuracy") for x in ("seconds", "updates")]
    figures.panels(path / "accuracy", panels)
    server_figure.waits(path / "waiting", {n: ran.work for n, ran in named.items()})
