"""What hogwild.py shows: turns in; rows, two tables and figures out."""

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hogwild_runs import SERIAL, Case, Turns, seconds, speedup

from dml.metrics import figures
from dml.metrics.figures import Panel
from dml.metrics.writers import Row
from dml.strategies.sparse.workers import Sparse


def row(
    problem: Sparse, case: Case, turns: tuple[Turns, Turns], updates: int
) -> dict[str, Any]:
    """Return what the table says of a case: of turns that were timed, and counted."""
    timed, counted = turns
    objectives = [
        problem.model.objective(timed[one][0].table, problem.data)
        for one in (case, SERIAL)
    ]
    way, count = case
    return {
        "kind": "race",
        "way": way,
        "workers": count,
        "updates_per_second": updates / seconds(timed[case]),
        "speedup": speedup(timed[SERIAL], timed[case]),
        "objective": objectives[0],
        "to_serial": objectives[0] / objectives[1] - 1,
        "lost_share": counted[case][0].lost_share if case in counted else 0.0,
    }


WHO = {
    "problem": (10, "{problem}"),
    "way": (10, "{way}"),
    "workers": (7, "{workers}"),
    "updates/s": (11, "{updates_per_second:,.0f}"),
    "speed-up": (8, "{speedup:.2f}"),
}
COLUMNS = WHO | {
    "objective": (9, "{objective:.5f}"),
    "to serial": (9, "{to_serial:+.2%}"),
    "lost": (7, lambda row: f"{row['lost_share']:.1e}" if row["lost_share"] else "0"),
    "omega": (5, "{omega}"),
    "delta": (7, "{delta:.4f}"),
    "rho": (7, "{rho:.4f}"),
}
DELAYED = WHO | {
    "delay us": (8, "{delay_us:g}"),
    "gradient us": (11, "{gradient_us:.2f}"),
}


KINDS = {"race": COLUMNS, "delay": DELAYED}


def machine() -> dict[str, Any]:
    """Return what the numbers are of: the processor, and its cores."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(":")[1].strip() for line in lines if "model name" in line]
    return {"processor": (names or [platform.machine()])[0], "cores": os.cpu_count()}


def drawn(path: Path, rows: Sequence[Row]) -> None:
    """Draw the speed-ups by workers, a panel a problem, and by a gradient's time."""

    def curves(mine: Sequence[Row], x: str) -> dict[str, figures.Curve]:
        ways = dict.fromkeys(row["way"] for row in mine if row["way"] != SERIAL[0])
        found = {way: [row for row in mine if row["way"] == way] for way in ways}
        return {
            way: ([row[x] for row in some], [row["speedup"] for row in some])
            for way, some in found.items()
        }

    races = [row for row in rows if row["kind"] == "race"]
    rhos = {row["problem"]: row["rho"] for row in races}
    panels = [
        Panel(
            f"{name}, ρ = {rho:.2g}",
            curves([row for row in races if row["problem"] == name], "workers"),
            *("workers", "speed-up over serial"),
        )
        for name, rho in rhos.items()
    ]
    top = max(row["speedup"] for row in races)
    figures.panels(path / "speedup", panels, within=(0, 1.05 * top))
    if delays := [row for row in rows if row["kind"] == "delay"]:
        labels = {"x": "microseconds a gradient", "y": "speed-up over serial"}
        series = curves(delays, "gradient_us")
        figures.curves(path / "delays", series, **labels, log="x")
