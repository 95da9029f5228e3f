"""Fastest runs by batch in; rows, a verdict by a rule and two figures out."""

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from batch_size_runs import Fastest

from dml.metrics import figures
from dml.metrics.writers import Columns, Row

CLAIM = (
    "claimed (Yin 2018): k times the batch takes 1/k of the steps up to B0, about the "
    "bound of the gradients' diversity: less where examples repeat; beyond, no fewer"
)
WORTH = 2  # times the examples of batch 1, up to which a batch is worth it
NEAR = 4  # times the bound, or its part, within which B0 agrees with it


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


def knee(rows: Sequence[Row]) -> int | None:
    """Return B0: the last batch, all smaller ones too, that is worth its examples."""
    first, found = rows[0]["examples"], None
    for row in rows if first else ():
        if not row["examples"] or row["examples"] > WORTH * first:
            break
        found = row["batch"]
    return found


def stops(rows: Sequence[Row], b0: int | None) -> bool:
    """Whether, from B0 to k times it, steps fall by less than the root of k."""
    beyond = [row for row in rows if row["batch"] > (b0 or math.inf)]
    if not beyond:
        return False
    at = next(row for row in rows if row["batch"] == b0)
    fewest = min(row["steps"] or math.inf for row in beyond)
    return at["steps"] / fewest < math.sqrt(rows[-1]["batch"] / at["batch"])


def verdict(rows: Sequence[Row]) -> dict[str, Any]:
    """Say what was claimed and what is found; return a flat summary."""
    kinds = by_data(rows)
    b0 = {name: knee(some) for name, some in kinds.items()}
    bound = {name: some[0]["bound_least"] for name, some in kinds.items()}
    held = {
        "no speed-up beyond B0": all(stops(kinds[name], b0[name]) for name in kinds),
        "B0 is near the bound": all(
            one is not None and 1 / NEAR <= one / bound[name] <= NEAR
            for name, one in b0.items()
        ),
    }
    if len(kinds) > 1:
        small, large = b0["repeated"], b0["diverse"]
        held["repeated data has less"] = bool(small and large and small < large)
    judged = "holds" if all(held.values()) else "holds in part"
    judged = judged if any(held.values()) else "not seen"
    found = "; ".join(
        f"{name}: B0 = {one or 'none'} of a bound of {bound[name]:.0f}"
        for name, one in b0.items()
    )
    said = ", ".join(
        f"{claim}: {'yes' if yes else 'no'}" for claim, yes in held.items()
    )
    sys.stdout.write(f"{CLAIM}\nours: {found}\n{said}: {judged}\n")
    summary: dict[str, Any] = {"verdict": judged, "found": f"{found}; {said}"}
    for name, some in kinds.items():
        summary |= {f"{name}_b0": b0[name], f"{name}_bound_least": bound[name]}
        summary[f"{name}_bound"] = some[0]["bound"]
        for row in some:
            key = f"{name}_{row['batch']}"
            summary |= {f"{key}_{one}": row[one] for one in row if one in SUMMED}
            summary |= {
                f"{key}_{one}": row[one] for one in row if one.startswith("seconds")
            }
    return summary


SUMMED = ("steps", "examples", "speedup")


def by_data(rows: Sequence[Row]) -> dict[str, list[Row]]:
    names = dict.fromkeys(row["data"] for row in rows)
    return {name: [row for row in rows if row["data"] == name] for name in names}


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
