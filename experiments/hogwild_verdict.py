"""What Niu 2011 says beside what hogwild.py sees: rows in; lines and a summary out."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hogwild_problems import DENSE, SPARSE
from hogwild_report import machine

from dml.metrics.writers import Row

PUBLISHED = {  # of the problems most like ours
    "svm": "RCV1 3x at 10 of 12 cores (rho 0.44, Delta 1)",
    "cuts": "DBLife 9x, round robin 5x; another cut > 4x at 10 of 12 cores",
}
CLAIM = (
    "published (Niu 2011): lock-free >= locked >= round robin; round robin is level "
    "only where a gradient takes > 1 ms; speed-up falls with rho"
)
LADDER = ["hogwild", "locked", "roundrobin"]  # fastest first
NOISE = 0.03  # of a speed: less is no difference
LEVEL = 0.9  # of HOGWILD!'s speed: round robin has caught up


def verdict(rows: Sequence[Row]) -> dict[str, Any]:
    """Say what was published and what we see; return a flat summary."""
    most, found = max(row["workers"] for row in rows), machine()
    sys.stdout.write(
        f"{most} workers on {found['cores']} cores ({found['processor']}), speed-ups "
        "over serial:\n"
    )
    races = [row for row in rows if row["kind"] == "race"]
    best = [row for row in races if row["workers"] == most]
    levels = caught([row for row in rows if row["kind"] == "delay"])
    judged = ordered(best) | falling(best)
    if levels:
        judged["round robin catches up"] = levels["level_us"] is not None
    said = concluded(judged)
    sys.stdout.write(f"{CLAIM}\nours: {said}\n")
    return totals(races) | levels | found | {"verdict": said}


def totals(races: Sequence[Row]) -> dict[str, Any]:
    """Return what the summary says of each race, by problem, way and workers."""
    names = ("speedup", "to_serial", "lost_share", "updates_per_second")
    return {
        f"{row['problem']}_{row['way']}_{row['workers']}_{name}": row[name]
        for row in races
        for name in names
    }


def ordered(best: Sequence[Row]) -> dict[str, bool]:
    """Judge on each problem whether no way is faster than one that waits for less."""
    judged = {}
    for name in dict.fromkeys(row["problem"] for row in best):
        mine = {row["way"]: row for row in best if row["problem"] == name}
        speeds = [mine[way]["updates_per_second"] for way in LADDER if way in mine]
        pairs = list(zip(speeds, speeds[1:], strict=False))
        if pairs:
            held = all(one >= two * (1 - NOISE) for one, two in pairs)
            judged[f"{name} in this order"] = held
        if name in PUBLISHED:
            sys.stdout.write(f"published: {PUBLISHED[name]}\n")
        said = ", ".join(f"{way} {row['speedup']:.2f}x" for way, row in mine.items())
        sys.stdout.write(f"ours: {name} {said}\n")
    return judged


def falling(best: Sequence[Row]) -> dict[str, bool]:
    """Judge by two problems that are alike but for rho."""
    speeds = {row["problem"]: row["speedup"] for row in best if row["way"] == LADDER[0]}
    if not {SPARSE, DENSE} <= speeds.keys():
        return {}
    return {"falls with rho": speeds[DENSE] < speeds[SPARSE] * (1 - NOISE)}


def caught(delays: Sequence[Row]) -> dict[str, float | None]:
    """Say from which time a gradient takes round robin is as fast as others."""
    ways = {row["way"] for row in delays}
    if not {LADDER[0], LADDER[-1]} <= ways:
        return {}
    found: dict[str, float | None] = {}
    for key, way, level in (("level_us", LADDER[0], LEVEL), ("even_us", "serial", 1.0)):
        takes, speeds = ratios(delays, way)
        found[key] = at = crossing(takes, speeds, level)
        says = f"from {at:.3g} us a gradient" if at else "at no delay"
        if min(speeds) >= level:
            says = "at every delay"
        sys.stdout.write(f"ours: round robin has {level:.0%} of {way}'s speed {says}\n")
    return found


def ratios(delays: Sequence[Row], way: str) -> tuple[list[float], list[float]]:
    """Return a gradient's microseconds, and round robin's speed to a way's."""
    turns, base = (
        {row["gradient_us"]: row["speedup"] for row in delays if row["way"] == one}
        for one in (LADDER[-1], way)
    )
    takes = sorted(turns)
    return takes, [turns[one] / base.get(one, 1.0) for one in takes]


def crossing(xs: Sequence[float], ys: Sequence[float], level: float) -> float | None:
    """Return x from which on y is no more below a level, on lines over log x."""
    below = [i for i, y in enumerate(ys) if y < level]
    if not below or below[-1] + 1 == len(ys):  # never, or at the end too
        return None
    i = below[-1]
    share = (level - ys[i]) / (ys[i + 1] - ys[i])
    return float(np.exp(np.interp(share, [0, 1], np.log(xs[i : i + 2]))))


def concluded(judged: Mapping[str, bool]) -> str:
    """Say in one line what holds and what does not."""
    held = [name for name, holds in judged.items() if holds]
    missed = [name for name, holds in judged.items() if not holds]
    parts = [
        *([f"seen: {', '.join(held)}"] if held else []),
        *([f"not seen: {', '.join(missed)}"] if missed else []),
    ]
    word = "holds in part" if held and missed else "not seen" if missed else "holds"
    return "; ".join([*parts, word]) if parts else "nothing to judge"
