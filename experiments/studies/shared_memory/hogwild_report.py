"""The tables, figures and summary of hogwild.py."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from lab.claims import grouped, matching
from lab.hardware import describe_processor
from lab.writing import flatten_rows

from dml.figures import style as figures
from dml.figures.style import Panel
from dml.runs.writers import Row
from studies.shared_memory.hogwild_claims import LADDER, LEVEL, round_robin
from studies.shared_memory.hogwild_runs import SERIAL

WHO = {
    "problem": (10, "{problem}"),
    "way": (10, "{way}"),
    "workers": (7, "{workers}"),
    "updates/s": (11, "{updates_per_second:,.0f}"),
    "speed-up": (8, "{speedup:.2f}"),
}
KINDS = {
    "race": WHO
    | {
        "objective": (9, "{objective:.5f}"),
        "to serial": (9, "{to_serial:+.2%}"),
        "lost": (
            7,
            lambda row: f"{row['lost_share']:.1e}" if row["lost_share"] else "0",
        ),
        "omega": (5, "{omega}"),
        "delta": (7, "{delta:.4f}"),
        "rho": (7, "{rho:.4f}"),
    },
    "delay": WHO
    | {
        "delay us": (8, "{delay_us:g}"),
        "gradient us": (11, "{gradient_us:.2f}"),
    },
}
SPEEDUP = "speed-up over serial"


def summarised(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the flat summary; print the machine, and where round robin is level."""
    most, hardware = max(row["workers"] for row in rows), describe_processor()
    sys.stdout.write(
        f"{most} workers on {hardware['cores']} cores ({hardware['processor']}); "
        "speed-ups are over serial\n"
    )
    keys = ("speedup", "to_serial", "lost_share", "updates_per_second")
    runs = flatten_rows(
        matching(rows, kind="race"), "{problem}_{way}_{workers}_{key}", *keys
    )
    return runs | level(matching(rows, kind="delay")) | hardware


def level(delays: Sequence[Row]) -> dict[str, float | None]:
    """Return, and print, the time of a gradient from which on round robin is level."""
    if not {LADDER[0], LADDER[-1]} <= {row["way"] for row in delays}:
        return {}
    found: dict[str, float | None] = {}
    for key, way, least in (("level_us", LADDER[0], LEVEL), ("even_us", "serial", 1.0)):
        takes, speeds = round_robin(delays, way)
        found[key] = at = crossing(takes, speeds, least)
        where = f"from {at:.3g} us per gradient on" if at else "at no delay"
        if min(speeds) >= least:
            where = "at every delay"
        sys.stdout.write(f"round robin has {least:.0%} of {way}'s speed {where}\n")
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
    runs, delays = (matching(rows, kind=kind) for kind in KINDS)
    panels = [
        Panel(
            f"{name}, ρ = {some[0]['rho']:.2g}",
            by_way(some, "workers", "speedup"),
            *("workers", SPEEDUP),
        )
        for name, some in grouped(runs, "problem").items()
    ]
    top = max(row["speedup"] for row in runs)
    figures.panels(path / "speedup", panels, within=(0, 1.05 * top))
    if delays:
        series = by_way(delays, "gradient_us", "speedup")
        labels = {"x": "microseconds a gradient", "y": SPEEDUP}
        figures.curves(path / "delays", series, **labels, log="x")


def by_way(rows: Sequence[Row], x: str, y: str) -> dict[str, figures.Curve]:
    """Return a curve for each strategy but serial."""
    return {
        way: ([row[x] for row in some], [row[y] for row in some])
        for way, some in grouped(rows, "way").items()
        if way != SERIAL[0]
    }
