"""The cases, table, summary and figures of downpour.py."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.claims import grouped

from dml.figures import style as figures
from dml.runs.results import Run
from dml.runs.writers import Columns
from studies.server.comparison import Case
from studies.server.runs import (
    RunResult,
    draw_waits,
    panel,
    select_columns,
    time_to_target,
)

COLUMNS: Columns = {
    "strategy": (16, "{strategy}"),
    "rate": (6, "{rate:g}"),
    "accuracy": (8, "{accuracy:.4f}"),
    **select_columns("to target", "seconds", "updates", "stale", "idle", "words"),
}


def case(result: RunResult, strategy: str, rate: float, target: float) -> Case:
    """Return the case of a strategy and a learning rate.

    Args:
      result: Results of the run.
      strategy: Name of the strategy.
      rate: Learning rate.
      target: Target accuracy.
    """
    row = {
        "strategy": strategy,
        "rate": rate,
        "accuracy": result.summary["accuracy"] or 0.0,
        "seconds_to_target": time_to_target(result, "accuracy", target, falls=False),
    }
    return Case(result.summary | row, result)


def best(cases: Sequence[Case]) -> dict[str, Case]:
    """Return the best case of each strategy.

    The best case reaches the target first; if no case reaches it, the best one has the
    highest accuracy.
    """

    def order(case: Case) -> tuple[float, float]:
        seconds = case.row["seconds_to_target"]
        return math.inf if seconds is None else seconds, -case.row["accuracy"]

    strategies = dict.fromkeys(case.row["strategy"] for case in cases)
    return {
        name: min((case for case in cases if case.row["strategy"] == name), key=order)
        for name in strategies
    }


def summarize(cases: Sequence[Case]) -> dict[str, Any]:
    """Return the flat summary of each strategy at its best rate."""
    return {
        f"{strategy.lower().replace(' ', '_')}_{key}": case.row[key]
        for strategy, case in best(cases).items()
        for key in ("accuracy", "rate", "seconds_to_target")
    }


def conclude(run: Run) -> str:
    """Return the seconds of each strategy to the target, at its best rate."""
    unit = "virtual s" if run.flags.get("simulate") else "s"
    texts = []
    for strategy, rows in grouped(run.rows, "strategy").items():
        times = [row["seconds_to_target"] for row in rows]
        reached = [seconds for seconds in times if seconds is not None]
        accuracy = max(row["accuracy"] for row in rows)
        text = f"never (at most {accuracy:.1%})"
        text = f"{min(reached):.3g} {unit}" if reached else text
        texts.append(f"{strategy}: {text}")
    return f"Time to accuracy {run.flags['target']:g}: {', '.join(texts)}."


def draw(path: Path, cases: Sequence[Case]) -> None:
    """Draw accuracy and workers' times of each strategy at its best rate."""
    runs = {
        f"{strategy}, rate {case.row['rate']:g}": case.result
        for strategy, case in best(cases).items()
    }
    panels = [panel(f"by {x}", runs, x, "accuracy") for x in ("seconds", "updates")]
    figures.panels(path / "accuracy", panels)
    draw_waits(path / "waiting", runs)
