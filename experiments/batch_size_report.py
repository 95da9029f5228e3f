"""The rows, table, summary and figures of batch_size.py."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from batch_size_claims import by_data, knee
from batch_size_runs import Fastest

from dml.metrics import figures
from dml.metrics.writers import Columns, Row


def columns(crews: Sequence[int]) -> Columns:
    """Return the table's columns, the last ones by workers."""
    return {
        "data": (8, "{data}"),
        "batch": (6, "{batch:,d}"),
        "rate": (8, "{rate:.4g}"),
        "examples": (9, "{examples:,d}"),
        "steps": (8, "{steps:,d}"),
        "speed-up": (8, "{speedup:,.1f}"),
        "of ideal": (8, "{of_ideal:.0%}"),
        "bound": (7, "{bound:,.0f}"),
        "least": (7, "{bound_least:,.0f}"),
        **{f"s, p={p}": (8, f"{{seconds_{p}:.4f}}") for p in crews},
    }


def row(
    name: str,
    batch: int,
    found: Fastest,
    along: Sequence[float],
    took: Mapping[int, float],
) -> dict[str, Any]:
    """Return what the table says of a batch; None of what was not reached."""
    reached = found.examples < math.inf
    steps = math.ceil(found.examples / batch) if reached else None
    return {
        "data": name,
        "batch": batch,
        "rate": found.rate if reached else None,
        "examples": int(found.examples) if reached else None,
        "steps": steps,
        "bound": along[0],
        "bound_least": min(along),
        **{f"step_seconds_{p}": seconds for p, seconds in took.items()},
        **{f"seconds_{p}": steps and steps * took[p] for p in took},
    }


def gains(row: Row, first: Row) -> dict[str, float | None]:
    """Return the speed-up in steps against batch 1, and its share of the ideal."""
    if not row["steps"] or not first["steps"]:
        return {"speedup": None, "of_ideal": None}
    speedup = first["steps"] / row["steps"]
    return {"speedup": speedup, "of_ideal": speedup * first["batch"] / row["batch"]}


def summarised(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the flat summary: B0 and the bound of each data set, then each batch."""
    summary: dict[str, Any] = {}
    for name, some in by_data(rows).items():
        summary[f"{name}_b0"] = knee(some)
        summary[f"{name}_bound_least"] = some[0]["bound_least"]
        summary[f"{name}_bound"] = some[0]["bound"]
        for row in some:
            summary |= {
                f"{name}_{row['batch']}_{key}": row[key]
                for key in row
                if key in SUMMED or key.startswith("seconds")
            }
    return summary


SUMMED = ("steps", "examples", "speedup")


def drawn(path: Path, rows: Sequence[Row]) -> None:
    """Draw steps and seconds to ε by batch, of what reached it."""
    kinds = {
        name: [row for row in some if row["steps"]]
        for name, some in by_data(rows).items()
    }
    kinds = {name: some for name, some in kinds.items() if some}
    if not kinds:
        return
    steps_drawn(path / "steps", kinds)
    workers = [key for key in rows[0] if key.startswith("seconds_")]
    series = {
        f"{name}, p = {key.removeprefix('seconds_')}": (
            [row["batch"] for row in some],
            [row[key] for row in some],
        )
        for name, some in kinds.items()
        for key in workers
    }
    dashed = [name for name in series if name.startswith("repeated")]
    labels = {"x": "batch", "y": "seconds to ε", "log": "xy"}
    figures.curves(path / "seconds", series, dashed=dashed, **labels)


def steps_drawn(path: Path, kinds: Mapping[str, Sequence[Row]]) -> None:
    """Draw steps by batch, the ideal 1/B, B0 and the bound of each kind of data."""
    with figures.drawing(path, size=(6.4, 4.0)) as (_, (axes,)):
        for number, (name, rows) in enumerate(kinds.items()):
            look = {"color": f"C{number}", "linewidth": 1}
            xs, ys = [row["batch"] for row in rows], [row["steps"] for row in rows]
            axes.plot(xs, ys, "o-", color=f"C{number}", label=name)
            ideal = [ys[0] * xs[0] / x for x in xs]
            axes.plot(xs, ideal, "--", label="ideal 1/B", **look)
            b0 = knee(rows)
            if b0:
                ring = {"markersize": 11, "fillstyle": "none", "label": f"B₀ = {b0:,}"}
                axes.plot([b0], [ys[xs.index(b0)]], "o", **look, **ring)
            bound = rows[0]["bound_least"]
            axes.axvline(bound, linestyle=":", label=f"bound {bound:,.0f}", **look)
        axes.set(xlabel="batch", ylabel="steps to ε", xscale="log", yscale="log")
        axes.set_ylim(0.7, None)
        axes.legend()
