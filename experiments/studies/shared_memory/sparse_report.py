"""Printed lines of training on sparse problems: epochs and results."""

from collections.abc import Mapping

import numpy as np

from dml.runs.results import Run
from dml.runs.writers import Row, line

SCORES = (
    "accuracy",
    "rmse",
    "cut",
    "exact_cut",
    "cut_bound",
    "cut_ratio",
    "cut_accuracy",
)
# Phases of an epoch, without evaluation.
PHASES = "gradient_seconds", "wire_seconds", "update_seconds", "wait_seconds"


def updates_per_second(row: Row) -> float:
    """Return the updates per second of a row or of a summary."""
    return row["examples"] / max(sum(row.get(phase, 0.0) for phase in PHASES), 1e-9)


def speeds(summary: Row) -> dict[str, float]:
    """Return the updates per second and the share of lost changes."""
    measures = {"updates_per_second": updates_per_second(summary)}
    if "rows_lost" in summary:
        measures["lost_share"] = summary["rows_lost"] / max(summary["rows_changed"], 1)
    return measures


def gap(objective: float, optimum: float) -> dict[str, float]:
    """Return the least objective and the relative distance to it.

    If the least objective is 0, the distance is absolute.
    """
    return {
        "optimum": optimum,
        "gap": objective / optimum - 1 if optimum else objective,
    }


def components_text(largest: Mapping[int, float], deferred: np.ndarray) -> str:
    """Return a line on the largest components of conflict graphs of batches.

    largest: share of the batch in its largest component, by batch size.
    deferred: mask of the rows that cyclades defers to the end of a batch.
    """
    shares = ", ".join(f"{share:.3g} of {batch}" for batch, share in largest.items())
    hubs = f" ({deferred.sum()} deferred rows)" if deferred.any() else ""
    return f"largest component of a batch{hubs}: {shares or 'all examples'}"


def progress(row: Row) -> str:
    """Return a line about an epoch."""
    scores = (f"{name} {{{name}:.4f}}" for name in ("accuracy", "rmse", "cut"))
    quality = line(row, "objective {objective:.5f}", *scores)
    lost = line(row, "  {rows_lost:,.0f} changes lost")
    return f"{quality}  {updates_per_second(row) / 1e6:.2f} M updates/s{lost}"


def conclude(run: Run) -> str:
    """Return the conclusion of a run."""
    summary = run.summary
    workers = f"{summary['workers']} worker{'s' * (summary['workers'] > 1)}"
    rate = f"{summary['updates_per_second']:,.0f} updates per second"
    distance = line(summary, " ({gap:+.2%} from the optimum)")
    return f"{workers} made {rate}; objective {summary['objective']:.5g}{distance}."


def summary_text(summary: Row) -> str:
    """Return the lines printed at the end of a run."""
    scores = (f"{name.replace('_', ' ')} {{{name}:.4f}}" for name in SCORES)
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
        "{lost_share:.2%} of changes lost",
        "training {seconds:.2f} s",
        "total {total_seconds:.1f} s",
    )
    return "  ".join(first) + "\n" + last
