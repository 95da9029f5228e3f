"""The cases, table, summary and figures of consistency.py."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.claims import grouped, matching

from dml.figures import style as figures
from dml.runs.results import Run
from dml.runs.writers import Columns
from studies.server.comparison import Case
from studies.server.runs import (
    RunResult,
    draw_staleness,
    draw_waits,
    panel,
    select_columns,
    time_to_target,
)

NEAR = 1.02  # default target as a ratio to the last objective of the first run
BOUNDED = ("ssp", "essp")  # consistencies with a staleness bound s
Runs = dict[str, RunResult]  # by consistency
COLUMNS: Columns = {
    "consistency": (11, "{consistency}"),
    "delay": (25, "{delay}"),
    "objective": (
        9,
        lambda row: f"{row['objective']:.4f}" if row["objective"] else "diverged",
    ),
    **select_columns("to target", "stale", "idle"),
    **select_columns("seconds", "updates", "max", "late"),
}


def case(result: RunResult, consistency: str, distribution: str, target: float) -> Case:
    """Return the case of a consistency and a delay distribution.

    Args:
      result: Results of the run.
      consistency: Consistency such as ssp:3.
      distribution: Delay distribution of the workers as text.
      target: Target objective.
    """
    row = {
        "consistency": consistency,
        "delay": distribution,
        **result.summary,
        "objective_at_start": result.curves["objective"][0],
        "seconds_to_target": time_to_target(result, "objective", target),
        "staleness": result.staleness.tolist(),
    }
    return Case(row, result)


def last_objective(result: RunResult) -> float:
    """Return the objective at the end; infinite if it is not finite."""
    last = result.curves["objective"][-1]
    return last if math.isfinite(last) else math.inf


def group_by_delay(cases: Sequence[Case]) -> dict[str, Runs]:
    """Return the results by delay distribution and by consistency."""
    groups: dict[str, Runs] = {}
    for case in cases:
        groups.setdefault(case.row["delay"], {})[case.row["consistency"]] = case.result
    return groups


def summarize(cases: Sequence[Case]) -> dict[str, Any]:
    """Return the flat summary: four numbers per consistency and delay distribution.

    The keys contain the position of the delay distribution, from 1.
    """
    return {
        f"{consistency}_{position}".replace(":", "_") + f"_{key}": result.summary[key]
        for position, runs_by_consistency in enumerate(
            group_by_delay(cases).values(), 1
        )
        for consistency, result in runs_by_consistency.items()
        for key in ("objective", "seconds", "staleness_mean", "idle_share")
    }


def conclude(run: Run) -> str:
    """Return the consistency that reaches the target first, by delay distribution."""
    unit = "virtual s" if run.flags.get("simulate") else "units of the delay"
    texts = []
    for delay, rows in grouped(run.rows, "delay").items():
        reached = [row for row in rows if row["seconds_to_target"] is not None]
        first = min(reached, key=lambda row: row["seconds_to_target"], default=None)
        text = "no consistency reaches the target"
        if first:
            text = (
                f"{first['consistency']} reaches the target first, after "
                f"{first['seconds_to_target']:.3g} {unit}"
            )
            bsp = matching(reached, consistency="bsp")
            if bsp and first is not bsp[0]:
                text += f" (bsp {bsp[0]['seconds_to_target']:.3g})"
        texts.append(f"with delay {delay} {text}")
    text = "; ".join(texts)
    return f"{text[:1].upper()}{text[1:]}."


def draw(path: Path, cases: Sequence[Case]) -> None:
    """Draw the objective by clocks, updates and seconds; waiting and staleness."""
    start = cases[0].result.curves["objective"][0]
    least = min(start, *(last_objective(case.result) for case in cases))
    grouped = group_by_delay(cases)
    consistencies = next(iter(grouped.values()))
    look = {
        "within": (0.95 * least, 1.3 * start),
        "dashed": [name for name in consistencies if name.startswith("essp")],
    }

    def draw_objective(name: str, groups: dict[str, Runs], x: str) -> None:
        panels = [
            panel(distribution, runs, x, "objective")
            for distribution, runs in groups.items()
        ]
        figures.panels(path / name, panels, **look)

    for x in ("clocks", "updates", "seconds"):
        draw_objective(f"objective_{x}", grouped, x)
    bounded = [c for c in cases if c.row["consistency"].split(":")[0] in BOUNDED]
    if bounded:
        draw_objective("objective_bounded", group_by_delay(bounded), "clocks")
    for position, runs_by_consistency in enumerate(grouped.values(), 1):
        draw_waits(path / f"waiting_{position}", runs_by_consistency)
        draw_staleness(path / f"staleness_{position}", runs_by_consistency)
