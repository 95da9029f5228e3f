"""The tables, figures and summary of hogwild.py."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.claims import grouped, matching
from lab.writing import flatten_rows
import numpy as np

from dml.figures import style as figures
from dml.figures.style import Panel
from dml.runs.hardware import describe_processor
from dml.runs.results import Run
from dml.runs.writers import Row
from studies.shared_memory.hogwild_claims import (
    HOGWILD_POLICY,
    LEVEL,
    ROUND_ROBIN,
    round_robin_ratios,
)
from studies.shared_memory.hogwild_runs import SERIAL

CASE = {
    "problem": (10, "{problem}"),
    "strategy": (10, "{strategy}"),
    "workers": (7, "{workers}"),
    "updates/s": (11, "{updates_per_second:,.0f}"),
    "speed-up": (8, "{speedup:.2f}"),
}
KINDS = {
    "race": CASE
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
    "delay": CASE
    | {
        "delay us": (8, "{delay_us:g}"),
        "gradient us": (11, "{gradient_us:.2f}"),
    },
}
SPEEDUP = "speed-up over serial"


def summarize(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the flat summary; print the machine, and the parity of round robin."""
    most, hardware = max(row["workers"] for row in rows), describe_processor()
    sys.stdout.write(
        f"{most} workers on {hardware['cores']} cores ({hardware['processor']}); "
        "speed-ups are over serial\n"
    )
    keys = ("speedup", "to_serial", "lost_share", "updates_per_second")
    runs = flatten_rows(
        matching(rows, kind="race"), "{problem}_{strategy}_{workers}_{key}", *keys
    )
    return runs | round_robin_parity(matching(rows, kind="delay")) | hardware


def round_robin_parity(delays: Sequence[Row]) -> dict[str, float | None]:
    """Return and print the times of a gradient from which on round robin is as fast.

    level_us: microseconds at which it has LEVEL of HOGWILD!'s speed; None: never or
      always.
    even_us: microseconds at which it has the speed of serial; None: never or always.
    """
    if not {HOGWILD_POLICY, ROUND_ROBIN} <= {row["strategy"] for row in delays}:
        return {}
    parities: dict[str, float | None] = {}
    for key, other, level in (
        ("level_us", HOGWILD_POLICY, LEVEL),
        ("even_us", "serial", 1.0),
    ):
        times, ratios = round_robin_ratios(delays, other)
        parities[key] = parity = crossing(times, ratios, level)
        where = f"from {parity:.3g} us per gradient on" if parity else "at no delay"
        if min(ratios) >= level:
            where = "at every delay"
        sys.stdout.write(f"round robin has {level:.0%} of {other}'s speed {where}\n")
    return parities


def crossing(xs: Sequence[float], ys: Sequence[float], level: float) -> float | None:
    """Return the x after which y is never below a level.

    y is interpolated linearly over log x. Return None if y is never below the level, or
    is below it at the end.
    """
    below = [i for i, y in enumerate(ys) if y < level]
    if not below or below[-1] + 1 == len(ys):
        return None
    i = below[-1]
    share = (level - ys[i]) / (ys[i + 1] - ys[i])
    return float(np.exp(np.interp(share, [0, 1], np.log(xs[i : i + 2]))))


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw speed-ups by workers for each problem, and by the time of a gradient."""
    runs, delays = (matching(rows, kind=kind) for kind in KINDS)
    panels = [
        Panel(
            f"{name}, ρ = {group[0]['rho']:.2g}",
            curves_by_strategy(group, "workers", "speedup"),
            "workers",
            SPEEDUP,
        )
        for name, group in grouped(runs, "problem").items()
    ]
    top = max(row["speedup"] for row in runs)
    figures.panels(path / "speedup", panels, within=(0, 1.05 * top))
    if delays:
        series = curves_by_strategy(delays, "gradient_us", "speedup")
        labels = {"x": "microseconds per gradient", "y": SPEEDUP}
        figures.curves(path / "delays", series, **labels, log="x")


def curves_by_strategy(rows: Sequence[Row], x: str, y: str) -> dict[str, figures.Curve]:
    """Return a curve for each strategy except serial."""
    return {
        strategy: ([row[x] for row in group], [row[y] for row in group])
        for strategy, group in grouped(rows, "strategy").items()
        if strategy != SERIAL[0]
    }


def conclude(run: Run) -> str:
    """Return the speed-ups of most workers over serial, by problem."""
    rows = [row for row in run.rows if row["kind"] == "race"]
    texts = []
    most = max((row["workers"] for row in rows), default=0)
    for problem, group in grouped(rows, "problem").items():
        speeds = [
            f"{row['strategy']} {row['speedup']:.2f}"
            for row in sorted(group, key=lambda row: -row["speedup"])
            if row["workers"] == most
        ]
        texts.append(f"{', '.join(speeds)} on {problem}")
    return f"Speed-ups of {most} workers over serial: {'; '.join(texts)}."
