"""The rows, table, summary and figures of batch_size.py."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.claims import grouped
from lab.writing import flatten_rows

from dml.figures import style as figures
from dml.runs.results import Run
from dml.runs.writers import Columns, Row
from studies.shared_memory.batch_size_claims import efficient_batch
from studies.shared_memory.batch_size_runs import Fastest


def columns(workers: Sequence[int]) -> Columns:
    """Return the columns of the table, with one per number of workers at the end."""
    return {
        "data": (8, "{data}"),
        "batch": (6, "{batch:,d}"),
        "rate": (8, "{rate:.4g}"),
        "steps": (8, "{steps:,d}"),
        "speed-up": (8, "{speedup:,.1f}"),
        "of ideal": (8, "{of_ideal:.0%}"),
        "bound": (7, "{bound:,.0f}"),
        "examples": (9, "{examples:,d}"),
        "min bound": (9, "{bound_least:,.0f}"),
        **{f"s, p={p}": (8, f"{{seconds_{p}:.4f}}") for p in workers},
    }


def row(
    name: str,
    batch: int,
    search: Fastest,
    bounds: Sequence[float],
    step_seconds: Mapping[int, float],
    first: Row | None,
) -> dict[str, Any]:
    """Return the row of a batch size; if no rate reaches the target, values are None.

    Args:
      name: Name of the data.
      batch: Number of examples of a batch.
      search: Result of the search for the fastest rate.
      bounds: Bounds of the batch size at the start and along the run.
      step_seconds: Seconds of a step by the number of workers.
      first: Row of batch 1, the reference of speed-ups; None: this row.
    """
    reached = search.examples < math.inf
    steps = math.ceil(search.examples / batch) if reached else None
    base = first["steps"] if first else steps
    speedup = base / steps if steps and base else None
    return {
        "data": name,
        "batch": batch,
        "rate": search.rate if reached else None,
        "examples": int(search.examples) if reached else None,
        "steps": steps,
        "bound": bounds[0],
        "bound_least": min(bounds),
        **{f"step_seconds_{p}": seconds for p, seconds in step_seconds.items()},
        **{f"seconds_{p}": steps and steps * s for p, s in step_seconds.items()},
        "speedup": speedup,
        "of_ideal": speedup and speedup / batch,
    }


def summarize(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the flat summary: B0 and the bound of each data set, then each batch."""
    seconds = [key for key in rows[0] if key.startswith("seconds")]
    summary: dict[str, Any] = {}
    for name, rows_of_data in grouped(rows, "data").items():
        summary[f"{name}_b0"] = efficient_batch(rows_of_data)
        summary |= flatten_rows(
            rows_of_data[:1], "{data}_{key}", "bound_least", "bound"
        )
        keys = ("examples", "steps", *seconds, "speedup")
        summary |= flatten_rows(rows_of_data, "{data}_{batch}_{key}", *keys)
    return summary


def conclude(run: Run) -> str:
    """Return the largest useful batch of each data set, and its bound."""
    texts = [
        f"{run.summary[f'{name}_b0']} for {name} examples "
        f"({rows[0]['bound']:,.0f} by diversity)"
        for name, rows in grouped(run.rows, "data").items()
    ]
    return f"Largest useful batches: {', '.join(texts)}."


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw steps and seconds to the target ε by batch size, where it is reached."""
    rows_by_data = grouped((row for row in rows if row["steps"]), "data")
    if not rows_by_data:
        return
    draw_steps(path / "steps", rows_by_data)
    series = {
        f"{name}, p = {key.removeprefix('seconds_')}": (
            [row["batch"] for row in rows_of_data],
            [row[key] for row in rows_of_data],
        )
        for name, rows_of_data in rows_by_data.items()
        for key in rows[0]
        if key.startswith("seconds_")
    }
    dashed = [name for name in series if name.startswith("repeated")]
    labels = {"x": "batch", "y": "seconds to ε", "log": "xy"}
    figures.curves(path / "seconds", series, dashed=dashed, **labels)


def draw_steps(path: Path, rows_by_data: Mapping[str, Sequence[Row]]) -> None:
    """Draw steps by batch, the ideal 1/B, B0 and the bound of each data set."""
    with figures.drawing(path, size=(6.4, 4.0)) as (_, (axes,)):
        for index, (name, rows) in enumerate(rows_by_data.items()):
            look = {"color": f"C{index}", "linewidth": 1}
            xs, ys = [row["batch"] for row in rows], [row["steps"] for row in rows]
            axes.plot(xs, ys, "o-", color=f"C{index}", label=name)
            ideal = [ys[0] * xs[0] / x for x in xs]
            axes.plot(xs, ideal, "--", label="ideal 1/B", **look)
            b0 = efficient_batch(rows)
            if b0:
                ring = {"markersize": 11, "fillstyle": "none", "label": f"B₀ = {b0:,}"}
                axes.plot([b0], [ys[xs.index(b0)]], "o", **look, **ring)
            bound = rows[0]["bound_least"]
            axes.axvline(bound, linestyle=":", label=f"bound {bound:,.0f}", **look)
        axes.set(xlabel="batch", ylabel="steps to ε", xscale="log", yscale="log")
        axes.set_ylim(0.7, None)
        axes.legend()
