"""The timeline of an elastic run, its figure and its summary."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dml.figures import style as figures
from dml.runs.results import Run
from dml.runs.writers import Row

COLUMNS = {
    "event": (10, "{event}"),
    "seconds": (9, "{seconds:.3f}"),
    "update": (7, "{update}"),
    "workers": (7, "{workers}"),
    "noticed ms": (10, lambda row: milliseconds(row, "noticed")),
    "formed ms": (10, lambda row: milliseconds(row, "formed")),
    "committed ms": (12, lambda row: milliseconds(row, "committed")),
}


def milliseconds(row: Row, name: str) -> str:
    """Return the time since the death, in ms; a dash without a death."""
    since = row.get(name)
    return "-" if since is None else f"{1e3 * since:.1f}"


def timeline(
    deaths: Sequence[float], recoveries: Iterable[Row], begun: float
) -> list[dict[str, Any]]:
    """Return a row for each recovery, with the times since its death.

    Args:
      deaths: Time of each death, in s.
      recoveries: Recoveries, with the times at which worker 0 noticed the failure, had
        its new role, and had committed the next update.
      begun: Time of the first update.
    """
    rows, left = [], sorted(deaths)
    for recovery in recoveries:
        count = recovery["deaths"]
        died, left = left[:count], left[count:]
        since = died[0] if died else None
        row = {
            "event": "recovery",
            "seconds": (since or recovery["noticed"]) - begun,
            "update": recovery["step"],
            "workers": recovery["workers"],
            "deaths": recovery["deaths"],
        }
        if since is not None:
            times = ("noticed", "formed", "committed")
            row |= {name: recovery[name] - since for name in times}
        rows.append(row)
    return rows


def summarize(rows: Sequence[Row], elastic: Row, undisturbed: Row) -> dict[str, Any]:
    """Return the summary: deaths, seconds of the recoveries, and whether bits agree."""
    seconds = [row["committed"] for row in rows if "committed" in row]
    noticed = [row["noticed"] for row in rows if "noticed" in row]
    one, other = elastic["params_sha256"], undisturbed["params_sha256"]
    return {
        "deaths": sum(row["deaths"] for row in rows),
        "recoveries": len(rows),
        "recovery_seconds": max(seconds, default=0.0),
        "recovery_seconds_median": float(np.median(seconds)) if seconds else 0.0,
        "noticed_seconds": max(noticed, default=0.0),
        "updates": elastic["step"],
        "lost_updates": undisturbed["steps"] - elastic["steps"],
        "loss": elastic["loss"],
        "accuracy": elastic["accuracy"],
        "params_sha256": one,
        "undisturbed_sha256": other,
        "same_bits": one == other,
    }


def conclude(run: Run) -> str:
    """Return the deaths, the longest recovery, and whether the bits are equal."""
    summary = run.summary
    unit = "virtual s" if summary["virtual"] else "s"
    bits = "the same bits as" if summary["same_bits"] else "other bits than"
    return (
        f"{summary['deaths']} ranks died; the next update was committed after "
        f"at most {summary['recovery_seconds']:.2g} {unit}, and the parameters have "
        f"{bits} an undisturbed run."
    )


def draw(
    path: Path, progress: Sequence[tuple[float, int]], rows: Sequence[Row], begun: float
) -> None:
    """Draw updates and workers over time, with the recoveries.

    Args:
      path: Run folder.
      progress: Pairs (time, number of updates).
      rows: Rows of `timeline`.
      begun: Time of the first update.
    """
    with figures.drawing(path / "timeline", size=(8, 3.6)) as (_, (axes,)):
        times = [time - begun for time, _ in progress]
        axes.plot(times, [updates for _, updates in progress])
        for row in rows:
            axes.axvline(row["seconds"], color="C3", linewidth=0.8)
            label = f"{row['workers']} workers"
            if "committed" in row:
                label += f", {1e3 * row['committed']:.0f} ms"
            axes.annotate(
                label,
                (row["seconds"], row["update"]),
                xytext=(4, -12),
                textcoords="offset points",
                fontsize=7,
            )
        axes.set_xlabel("seconds")
        axes.set_ylabel("committed updates")
