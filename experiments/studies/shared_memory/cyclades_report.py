"""The tables, figures and summary of cyclades.py."""

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.claims import grouped, matching
from lab.writing import flatten_rows

from dml.figures import style as figures
from dml.figures.style import Panel
from dml.runs.hardware import describe_processor
from dml.runs.results import Run
from dml.runs.writers import Row
from studies.shared_memory.cyclades_measurements import CYCLADES
from studies.shared_memory.hogwild_runs import SERIAL

PROBLEM = {"problem": (10, "{problem}")}
BLOCKS = PROBLEM | {
    "batch": (5, "{batch}"),
    "hubs": (6, "{hubs:g}"),
    "deferred": (8, "{deferred}"),
}
CASE = PROBLEM | {
    "strategy": (8, "{strategy}"),
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
        "mean size": (9, "{mean_size:.2f}"),
        "largest": (7, "{largest:.1%}"),
    },
    "race": CASE
    | {
        "batch": (5, "{batch}"),
        "hubs": (6, "{hubs:g}"),
        "updates/s": (11, "{updates_per_second:,.0f}"),
        "x hogwild": (9, "{to_hogwild:.2f}"),
        "objective": (9, "{objective:.5f}"),
        "plan s": (7, "{planned:.4f}"),
    },
    "step": CASE
    | {
        "epochs": (6, "{epochs}"),
        "tries": (5, "{tries}"),
        "largest step": (12, "{rate:.4g}"),
    },
}


def summarize(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the flat summary; print the machine, and the ratios of largest steps."""
    runs, steps = matching(rows, kind="race"), matching(rows, kind="step")
    most, hardware = max(row["workers"] for row in runs), describe_processor()
    sys.stdout.write(
        f"{most} workers on {hardware['cores']} cores ({hardware['processor']})\n"
    )
    for other in grouped(steps, "strategy"):
        if other not in (CYCLADES, SERIAL[0]):
            ratios = ", ".join(
                f"{name} {ratio:.2f}x"
                for name, ratio in step_ratios(steps, other).items()
            )
            sys.stdout.write(
                f"largest step of cyclades divided by that of {other}: {ratios}\n"
            )
    equal = all(row["equal"] for row in matching(rows, kind="bits"))
    return totals(rows) | hardware | {"bits_equal": equal}


def step_ratios(steps: Sequence[Row], other: str) -> dict[str, float]:
    """Return CYCLADES' largest step divided by another strategy's, by problem."""
    cyclades, others = (
        {row["problem"]: row["rate"] for row in matching(steps, strategy=strategy)}
        for strategy in (CYCLADES, other)
    )
    return {name: rate / (others[name] or math.nan) for name, rate in cyclades.items()}


def totals(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the entries of the summary for each row."""
    sizes, runs, steps = (
        matching(rows, kind=kind) for kind in ("sizes", "race", "step")
    )
    speeds = ("updates_per_second", "to_hogwild")
    return {
        **flatten_rows(sizes, "{problem}_batch_{batch}_hubs_{hubs:g}_{key}", "largest"),
        **flatten_rows(runs, "{problem}_{strategy}_{workers}_{key}", *speeds),
        **{
            f"{row['problem']}_{row['strategy'].replace(' ', '_')}_largest_step": row[
                "rate"
            ]
            for row in steps
        },
    }


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw the largest components by batch size, and speeds by workers."""
    sizes, runs = (matching(rows, kind=kind) for kind in ("sizes", "race"))
    series = {
        f"{name}, {group[0]['deferred']} deferred rows": (
            [row["batch"] for row in group],
            [row["largest"] for row in group],
        )
        for (name, _), group in grouped(sizes, "problem", "hubs").items()
    }
    labels = {"x": "batch", "y": "share of the largest component"}
    figures.curves(path / "components", series, **labels, log="x")
    panels = [
        Panel(name, speeds(group), "workers", "updates/s, relative to the first")
        for name, group in grouped(runs, "problem").items()
    ]
    top = max(max(ys) for panel in panels for _, ys in panel.series.values())
    figures.panels(path / "throughput", panels, within=(0, 1.05 * top))


def speeds(runs: Sequence[Row]) -> dict[str, figures.Curve]:
    """Return the speed of each strategy by workers, relative to the first row.

    The first row is HOGWILD! with the fewest workers.
    """
    unit = runs[0]["updates_per_second"]
    return {
        strategy: (
            [row["workers"] for row in group],
            [row["updates_per_second"] / unit for row in group],
        )
        for strategy, group in grouped(runs, "strategy").items()
    }


def conclude(run: Run) -> str:
    """Return the number of equal trainings, and the speed relative to HOGWILD!."""
    kinds = grouped(run.rows, "kind")
    bits, races = kinds.get("bits", []), kinds.get("race", [])
    equal = sum(bool(row["equal"]) for row in bits)
    workers = ", ".join(map(str, sorted({row["workers"] for row in bits})))
    text = f"{equal} of {len(bits)} trainings by {workers} workers have serial's bits"
    speeds = [row["to_hogwild"] for row in races if row["strategy"] == "cyclades"]
    if speeds:
        text += f"; CYCLADES has {min(speeds):.2f} to {max(speeds):.2f} of HOGWILD!'s"
        text += " speed"
    return f"{text}."
