"""The tables, figures and summary of cyclades.py."""

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cyclades_parts import WAYS
from hogwild_report import machine
from hogwild_runs import SERIAL

from dml.metrics import figures
from dml.metrics.figures import Panel
from dml.metrics.writers import Row

PROBLEM = {"problem": (10, "{problem}")}
BLOCKS = PROBLEM | {
    "batch": (5, "{batch}"),
    "hubs": (6, "{hubs:g}"),
    "apart": (5, "{apart}"),
}
WHO = PROBLEM | {
    "way": (8, "{way}"),
    "workers": (7, "{workers}"),
}
KINDS = {
    "bits": BLOCKS
    | {
        "workers": (9, "{workers}"),
        "sha256": (12, lambda row: f"{row['sha256'][:12]:>12}"),
        "equal": (5, lambda row: "yes" if row["equal"] else "NO"),
    },
    "sizes": BLOCKS
    | {
        "components": (10, "{components:.1f}"),
        "mean": (7, "{mean_size:.2f}"),
        "largest": (7, "{largest:.1%}"),
    },
    "race": WHO
    | {
        "batch": (5, "{batch}"),
        "hubs": (6, "{hubs:g}"),
        "updates/s": (11, "{updates_per_second:,.0f}"),
        "x hogwild": (9, "{to_hogwild:.2f}"),
        "plan s": (7, "{planned:.4f}"),
        "objective": (9, "{objective:.5f}"),
    },
    "step": WHO
    | {
        "epochs": (6, "{epochs}"),
        "tries": (5, "{tries}"),
        "largest step": (12, "{rate:.4g}"),
    },
}


def summarised(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the flat summary; print the machine, and the ratios of largest steps."""
    most, found = (
        max(row["workers"] for row in rows if row["kind"] == "race"),
        machine(),
    )
    sys.stdout.write(
        f"{most} workers on {found['cores']} cores ({found['processor']})\n"
    )
    steps = [row for row in rows if row["kind"] == "step"]
    for way in dict.fromkeys(row["way"] for row in steps):
        if way not in (WAYS[1], SERIAL[0]):
            ratios = ", ".join(
                f"{name} {ratio:.2f}x" for name, ratio in to_step(steps, way).items()
            )
            sys.stdout.write(f"largest step, to the largest of {way}: {ratios}\n")
    equal = all(row["equal"] for row in rows if row["kind"] == "bits")
    return totals(rows) | found | {"bits_equal": equal}


def to_step(steps: Sequence[Row], way: str) -> dict[str, float]:
    """Return CYCLADES' largest step to that of another strategy, by problem."""
    mine, other = (
        {row["problem"]: row["rate"] for row in steps if row["way"] == one}
        for one in (WAYS[1], way)
    )
    return {name: rate / (other[name] or math.nan) for name, rate in mine.items()}


def totals(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the entries of the summary for each row."""
    found: dict[str, Any] = {}
    for row in rows:
        if row["kind"] == "sizes":
            key = f"{row['problem']}_batch_{row['batch']}_hubs_{row['hubs']:g}"
            found[f"{key}_largest"] = row["largest"]
        elif row["kind"] == "race":
            key = f"{row['problem']}_{row['way']}_{row['workers']}"
            found[f"{key}_updates_per_second"] = row["updates_per_second"]
            found[f"{key}_to_hogwild"] = row["to_hogwild"]
        elif row["kind"] == "step":
            key = f"{row['problem']}_{row['way'].replace(' ', '_')}"
            found[f"{key}_largest_step"] = row["rate"]
    return found


def drawn(path: Path, rows: Sequence[Row]) -> None:
    """Draw how conflicts connect batches, and updates a second by workers."""

    def of(kind: str, **values: object) -> list[Row]:
        return [
            row
            for row in rows
            if row["kind"] == kind and all(row[k] == v for k, v in values.items())
        ]

    names = list(dict.fromkeys(row["problem"] for row in rows))
    shares = list(dict.fromkeys(row["hubs"] for row in of("sizes")))
    series = {}
    for name in names:
        for share in shares:
            mine = of("sizes", problem=name, hubs=share)
            if not mine:  # no rows apart, as with a greater share
                continue
            label = f"{name}, {mine[0]['apart']} rows apart"
            xs = [row["batch"] for row in mine]
            series[label] = xs, [row["largest"] for row in mine]
    labels = {"x": "batch", "y": "share of the largest component"}
    figures.curves(path / "components", series, **labels, log="x")
    panels = [
        Panel(name, paces(of("race", problem=name)), "workers", "to HOGWILD!'s fewest")
        for name in names
    ]
    top = max(max(ys) for panel in panels for _, ys in panel.series.values())
    figures.panels(path / "throughput", panels, within=(0, 1.05 * top))


def paces(races: Sequence[Row]) -> dict[str, figures.Curve]:
    """Return each way's speed by workers, to that of the first row."""
    unit = races[0]["updates_per_second"]
    found: dict[str, tuple[list[float], list[float]]] = {}
    for row in races:
        xs, ys = found.setdefault(row["way"], ([], []))
        xs.append(row["workers"])
        ys.append(row["updates_per_second"] / unit)
    return found
