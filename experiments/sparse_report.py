"""What a run of training edge by edge says: lines on the way, and at the end."""

from collections.abc import Mapping
from typing import Any

import numpy as np

Row = Mapping[str, Any]
ENDS = "accuracy", "rmse", "cut", "exact_cut", "cut_bound", "cut_ratio", "cut_accuracy"
UPDATING = ("update_seconds", "wait_seconds")  # what an epoch takes


def pace(row: Row) -> float:
    """Return the updates a second, of rows or of a summary."""
    return row["examples"] / max(sum(row.get(part, 0.0) for part in UPDATING), 1e-9)


def speeds(summary: Row) -> dict[str, float]:
    """Return the updates a second, and the share of all changes that was lost."""
    found = {"updates_per_second": pace(summary)}
    if "rows_lost" in summary:
        found["lost_share"] = summary["rows_lost"] / max(summary["rows_changed"], 1)
    return found


def gap(objective: float, optimum: float) -> dict[str, float]:
    """Return the least objective, and how far above it one is."""
    return {
        "optimum": optimum,
        "gap": objective / optimum - 1 if optimum else objective,
    }


def connected(largest: Mapping[int, float], apart: np.ndarray) -> str:
    """Say how much of a batch the conflict graph's largest component has."""
    shares = ", ".join(f"{share:.3g} of {batch}" for batch, share in largest.items())
    hubs = f" ({apart.sum()} rows apart)" if apart.any() else ""
    return f"largest component of a batch{hubs}: {shares or 'of 1'}"


def progress(row: Row) -> str:
    held_out = "".join(
        f"  {name.replace('_', ' ')} {row[name]:.4f}"
        for name in ("accuracy", "rmse", "cut")
        if name in row
    )
    lost = f"  {row['rows_lost']:,.0f} changes lost" if "rows_lost" in row else ""
    return (
        f"objective {row['objective']:.5f}{held_out}"
        f"  {pace(row) / 1e6:.2f} M updates/s{lost}"
    )


def ends(summary: Row) -> str:
    """Say in a few lines what came out."""
    first = [
        f"objective {summary['objective']:.5f}",
        *(
            [f"optimum {summary['optimum']:.5f} ({summary['gap']:+.2%})"]
            if "optimum" in summary
            else []
        ),
        *(
            f"{name.replace('_', ' ')} {summary[name]:.4f}"
            for name in ENDS
            if name in summary
        ),
    ]
    others = [
        f"{name.split('_')[0]} {summary[name] / 1e6:.3g} M updates/s"
        for name in summary
        if name.endswith("_updates_per_second")
    ]
    lost = summary.get("lost_share")
    counted = "" if lost is None else f"  {lost:.2%} of changes lost at the end"
    return "\n".join(
        [
            "  ".join(first + others),
            f"{summary['updates_per_second'] / 1e6:.2f} M updates/s by "
            f"{summary['workers']} worker{'s' * (summary['workers'] > 1)}{counted}"
            f"  training {summary['seconds']:.2f} s"
            f"  in all {summary['total_seconds']:.1f} s",
        ]
    )
