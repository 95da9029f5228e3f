"""Tables, figure and printed answer of plan.py."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dml.figures import style as figures
from dml.runs.results import Run
from dml.runs.writers import Columns, Row
from studies.plan.question import Found

COLUMNS: dict[str, Columns] = {
    "meshes": {
        "mesh": (26, "{mesh}"),
        "seconds": (7, "{seconds:.3f}"),
        "peak": (5, "{mfu:.1%}"),
        "options": (36, "{options}"),
        "GiB": (5, "{gib:.1f}"),
        "M tokens/s": (10, lambda row: f"{row['tokens_per_second'] / 1e6:.3f}"),
    },
    "parts": {
        "part": (11, "{part}"),
        "seconds": (10, "{seconds:.4f}"),
        "share": (7, "{share:.1%}"),
        "hidden": (8, "{hidden:.4f}"),
        "": (36, lambda row: f"{'█' * round(36 * row['share']):<36}"),
    },
    "memory": {
        "memory": (12, "{part}"),
        "GiB": (7, "{gib:.2f}"),
    },
    "executed": {
        "executed": (28, "{conditions:<28}"),
        "seconds": (9, "{seconds:.4f}"),
        "over plan": (9, "{over_plan:.3f}"),
        "pipeline": (9, "{pipeline_seconds:.4f}"),
        "messages": (9, "{messages:,d}"),
        "GB": (9, "{gigabytes:,.1f}"),
    },
}


def titles(found: Found) -> dict[str, str]:
    """Return the titles of the tables."""
    query = found.query
    where = f"{query.cluster.devices} {query.device}, {query.cluster.precision}"
    size = f"{query.batch} examples of {query.shape.sequence} tokens"
    return {
        "meshes": f"Fastest meshes: {query.model}, {where}, {size}",
        "parts": "Parts of a step of the mesh that is explained; they add up to it",
        "memory": f"Memory of its fullest device: {query.cluster.device.memory:g} GiB",
        "executed": "The same step on virtual ranks, one for each replica and stage",
    }


def answer(found: Found, summary: Row) -> str:
    """Return the answer in words."""
    query = found.query
    interval = f"{summary['seconds_low']:.3g} to {summary['seconds_high']:.3g} s"
    fitted = "" if summary["fitted_device"] else ", no published run of this device"
    mesh = f"{summary['mesh']} ({summary['options']})"
    lines = [
        f"{mesh}: {summary['seconds']:.3g} s per step (80 % interval {interval}"
        f"{fitted}), {summary['mfu']:.1%} of the peak, "
        f"{summary['tokens_per_second']:,.0f} tokens/s, {summary['gib']:.1f} GiB of "
        f"{query.cluster.device.memory:g}. After the products, {summary['limit']} "
        f"takes most: {summary['limit_share']:.1%}.",
        f"{query.tokens:.3g} tokens: {summary['days']:.3g} days, with failures "
        f"{summary['days_with_failures']:.3g}: {summary['failures']:.1f} failures, a "
        f"checkpoint every {summary['checkpoint_minutes']:.3g} minutes. "
        f"{summary['dollars']:,.0f} dollars, {summary['mwh']:,.0f} MWh, "
        f"{summary['co2_tonnes']:,.0f} t CO2e.",
    ]
    return "\n" + "\n".join(textwrap.fill(line, 80) for line in lines)


def conclude(run: Run) -> str:
    """Return the fastest mesh and its seconds."""
    summary = run.summary
    return (
        f"{summary['mesh']} ({summary['options']}) takes {summary['seconds']:.3g} s "
        f"per step, {summary['mfu']:.1%} of the peak; {summary['fitting']:,d} of "
        f"{summary['meshes']:,d} meshes fit."
    )


def draw(path: Path, rows: Sequence[Row], found: Found) -> None:
    """Draw the parts of the step as bars."""
    rows = [row for row in rows if row["part"] != "remainder" and row["share"] > 1e-4]
    names: list[Any] = [row["part"] for row in rows]
    shares = [100 * row["share"] for row in rows]
    notes = [f" {row['seconds']:.3g} s" for row in rows]
    size = (6.4, 1.2 + 0.3 * len(rows))
    with figures.drawing(path, size=size, style=figures.PICTURE) as (_, (axes,)):
        axes.bar_label(axes.barh(names, shares, height=0.62), notes, fontsize=8)
        axes.set_xlim(right=1.15 * max(shares))
        axes.invert_yaxis()
        query = found.query
        axes.set(
            xlabel=f"% of {found.seconds:.3g} s per step; {query.model}, "
            f"{query.cluster.devices} {query.device}"
        )
