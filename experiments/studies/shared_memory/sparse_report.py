"""Printed lines of training on sparse problems: epochs and results."""

from collections.abc import Mapping

import numpy as np

from dml.runs.writers import Row, line

ENDS = "accuracy", "rmse", "cut", "exact_cut", "cut_bound", "cut_ratio", "cut_accuracy"
# what an epoch takes
UPDATING = "gradient_seconds", "wire_seconds", "update_seconds", "wait_seconds"


def pace(row: Row) -> float:
    """Return the updates per second of rows or of a summary."""
    return row["examples"] / max(sum(row.get(part, 0.0) for part in UPDATING), 1e-9)


def speeds(summary: Row) -> dict[str, float]:
    """Return the updates per second and the share of lost changes."""
    measures = {"updates_per_second": pace(summary)}
    if "rows_lost" in summary:
        measures["lost_share"] = summary["rows_lost"] / max(summary["rows_changed"], 1)
    return measures


def gap(objective: float, optimum: float) -> dict[str, float]:
    """Return the least objective and the relative distance to it."""
    return {
        "optimum": optimum,
        "gap": objective / optimum - 1 if optimum else objective,
    }


def connected(largest: Mapping[int, float], apart: np.ndarray) -> str:
    """Return a line on the largest components of conflict graphs of batches."""
    shares = ", ".join(f"{share:.3g} of {batch}" for batch, share in largest.items())
    hubs = f" ({apart.sum()} rows apart)" if apart.any() else ""
    return f"largest component of a batch{hubs}: {shares or 'of 1'}"


def progress(row: Row) -> str:
    """Return a line about an epoch."""
    scores = (f"{name} {{{name}:.4f}}" for name in ("accuracy", "rmse", "cut"))
    before = line(row, "objective {objective:.5f}", *scores)
    lost = line(row, "  {rows_lost:,.0f} changes lost")
    return f"{before}  {pace(row) / 1e6:.2f} M updates/s{lost}"


def sentence(summary: Row) -> str:
    """Return the conclusion of a run."""
    workers = f"{summary['workers']} worker{'s' * (summary['workers'] > 1)}"
    rate = f"{summary['updates_per_second']:,.0f} updates per second"
    distance = line(summary, " ({gap:+.2%} from the optimum)")
    return f"{workers} made {rate}; objective {summary['objective']:.5g}{distance}."


def ends(summary: Row) -> str:
    """Return the lines printed at the end of a run."""
    scores = (f"{name.replace('_', ' ')} {{{name}:.4f}}" for name in ENDS)
    optimum = "optimum {optimum:.5f} ({gap:+.2%})"
    first = [line(summary, "objective {objective:.5f}", optimum, *scores)]
    first += [
        f"{name.split('_')[0]} {summary[name] / 1e6:.3g} M updates/s"
        for name in summary
        if name.endswith("_updates_per_second")
    ]
    workers = f"{summary['workers']} worker{'s' * (summary['workers'] > 1)}"
    last = line(
        summary,
        f"{summary['updates_per_second'] / 1e6:.2f} M updates/s by {workers}",
        "{lost_share:.2%} of changes lost at the end",
        "training {seconds:.2f} s",
        "in all {total_seconds:.1f} s",
    )
    return "  ".join(first) + "\n" + last
