"""The rows, tables, figures and summary of hogwild.py."""

import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hogwild_claims import LADDER, LEVEL, round_robin
from hogwild_runs import SERIAL, Case, Turns, seconds, speedup

from dml.metrics import figures
from dml.metrics.figures import Panel
from dml.metrics.writers import Row
from dml.types import Problem


def row(
    problem: Problem, case: Case, turns: tuple[Turns, Turns], updates: int
) -> dict[str, Any]:
    """Return what the table says of a case: of turns that were timed, and counted."""
    timed, counted = turns
    objectives = [
        problem.kernel.model.objective(timed[one][0].table, problem.kernel.data)
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
    """Return the processor and the number of its cores."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(":")[1].strip() for line in lines if "model name" in line]
    return {"processor": (names or [platform.machine()])[0], "cores": os.cpu_count()}


def summarised(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the flat summary; print the machine, and where round robin is level."""
    most, found = max(row["workers"] for row in rows), machine()
    sys.stdout.write(
        f"{most} workers on {found['cores']} cores ({found['processor']}); speed-ups "
        "are over serial\n"
    )
    names = ("speedup", "to_serial", "lost_share", "updates_per_second")
    races = {
        f"{row['problem']}_{row['way']}_{row['workers']}_{name}": row[name]
        for row in rows
        if row["kind"] == "race"
        for name in names
    }
    return races | caught(rows) | found


def caught(rows: Sequence[Row]) -> dict[str, float | None]:
    """Return, and print, the time of a gradient from which on round robin is level."""
    delays = [row for row in rows if row["kind"] == "delay"]
    if not {LADDER[0], LADDER[-1]} <= {row["way"] for row in delays}:
        return {}
    found: dict[str, float | None] = {}
    for key, way, level in (("level_us", LADDER[0], LEVEL), ("even_us", "serial", 1.0)):
        takes, speeds = round_robin(delays, way)
        found[key] = at = crossing(takes, speeds, level)
        where = f"from {at:.3g} us a gradient on" if at else "at no delay"
        if min(speeds) >= level:
            where = "at every delay"
        sys.stdout.write(f"round robin has {level:.0%} of {way}'s speed {where}\n")
    return found


def crossing(xs: Sequence[float], ys: Sequence[float], level: float) -> float | None:
    """Return x from which on y is not below a level, on lines over log x."""
    below = [i for i, y in enumerate(ys) if y < level]
    if not below or below[-1] + 1 == len(ys):  # never below, or below at the end
        return None
    i = below[-1]
    share = (level - ys[i]) / (ys[i + 1] - ys[i])
    return float(np.exp(np.interp(share, [0, 1], np.log(xs[i : i + 2]))))


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
