"""What Pan 2016 says beside what cyclades.py sees: rows in; lines and a summary out."""

import math
import sys
from collections.abc import Sequence
from typing import Any

from cyclades_parts import WAYS
from hogwild_report import machine
from hogwild_runs import SERIAL
from hogwild_verdict import NOISE, concluded

from dml.metrics.writers import Row

CLAIM = (
    "published (Pan 2016, 18 cores): the bits of serial on any workers; up to 40 % "
    "faster than HOGWILD!; larger stable steps"
)
LARGER = 1.25  # of two steps that were sought to as much: less is no difference


def verdict(rows: Sequence[Row]) -> dict[str, Any]:
    """Say what was published and what we see; return a flat summary."""
    kinds = {
        kind: [row for row in rows if row["kind"] == kind]
        for kind in ("bits", "sizes", "race", "step")
    }
    most = max(row["workers"] for row in kinds["race"])
    best = [row for row in kinds["race"] if row["workers"] == most]
    summary = totals(kinds["sizes"], kinds["race"], kinds["step"])
    found = machine()
    sys.stdout.write(f"{CLAIM}\n")
    judged = {"same bits": all(row["equal"] for row in kinds["bits"])}
    same = sum(row["equal"] for row in kinds["bits"])
    sys.stdout.write(f"ours: {same} of {len(kinds['bits'])} have serial's bits\n")
    faster = {r["problem"]: r["to_hogwild"] for r in best if r["way"] == "cyclades"}
    judged["faster than HOGWILD! somewhere"] = max(faster.values()) > 1 + NOISE
    sys.stdout.write(
        f"ours: {most} workers on {found['cores']} cores ({found['processor']}), to "
        f"HOGWILD!'s updates/s: {spelled(faster)}\n"
    )
    for way in dict.fromkeys(row["way"] for row in kinds["step"]):
        if way in (WAYS[1], SERIAL[0]):
            continue
        steps = ratios(kinds["step"], way)
        judged[f"larger steps than {way} somewhere"] = max(steps.values()) >= LARGER
        sys.stdout.write(f"ours: to the largest step of {way}: {spelled(steps)}\n")
    said = concluded(judged)
    sys.stdout.write(f"ours: {said}\n")
    return summary | found | {"bits_equal": judged["same bits"], "verdict": said}


def ratios(steps: Sequence[Row], way: str) -> dict[str, float]:
    """Return CYCLADES' largest step to that of another way, by problem."""
    mine, other = (
        {row["problem"]: row["rate"] for row in steps if row["way"] == one}
        for one in (WAYS[1], way)
    )
    return {name: rate / (other[name] or math.nan) for name, rate in mine.items()}


def spelled(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}x" for name, value in values.items())


def totals(
    sizes: Sequence[Row], races: Sequence[Row], steps: Sequence[Row]
) -> dict[str, Any]:
    """Return what the summary says of each row."""
    found: dict[str, Any] = {}
    for row in sizes:
        key = f"{row['problem']}_batch_{row['batch']}_hubs_{row['hubs']:g}"
        found[f"{key}_largest"] = row["largest"]
    for row in races:
        key = f"{row['problem']}_{row['way']}_{row['workers']}"
        found[f"{key}_updates_per_second"] = row["updates_per_second"]
        found[f"{key}_to_hogwild"] = row["to_hogwild"]
    for row in steps:
        found[f"{row['problem']}_{row['way'].replace(' ', '_')}_largest_step"] = row[
            "rate"
        ]
    return found
