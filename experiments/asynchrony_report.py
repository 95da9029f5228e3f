"""The rows, table, summary and figure of asynchrony.py."""

import itertools
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from asynchrony_claims import tolerated

from dml.metrics import figures, writers
from dml.metrics.writers import Row, Writer
from dml.types import Batch


class Case(NamedTuple):
    """One training."""

    problem: str
    overlap: float  # of two examples: the less, the sparser
    rate: float
    tau: float
    error: float  # the objective above the optimum's


COLUMNS: writers.Columns = {
    "problem": (10, "{problem}"),
    "overlap": (7, "{overlap:.4f}"),
    "rate": (5, "{rate:g}"),
    "tau": (5, "{tau:g}"),
    "mean": (6, "{delay_mean:.1f}"),
    "most": (5, "{delay_max:.0f}"),
    "error": (8, "{error:.5f}"),
    "x serial": (8, "{ratio:.2f}"),
    "": (9, lambda row: "diverged" if row["diverged"] else ""),
}


def overlap(batch: Batch) -> float:
    """Return ⟨x, x'⟩ of two examples drawn, on average: of their mean with itself."""
    return float(np.square(batch.inputs.mean(axis=0)).sum())


def row(cases: Sequence[Case], start: float) -> dict[str, Any]:
    """Return what the table says of the last case; start is the error of no weights."""
    last = cases[-1]
    first = next(case for case in cases if case[:3] == last[:3])
    error = last.error if math.isfinite(last.error) else None
    return last._asdict() | {
        "ratio": last.error / first.error,
        "diverged": error is None or error >= start,
    }


def summarised(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the flat summary: all errors, and the tolerated delays."""
    longest = tolerated(rows)
    summary: dict[str, Any] = {}
    for row in rows:
        name = f"{row['problem']}_{row['rate']:g}"
        summary[f"tolerated_{name}"] = longest[row["problem"], row["rate"]]
        summary[f"error_{name}_{row['tau']:g}"] = row["error"]
    return summary


def chart(path: Path) -> AbstractContextManager[Writer]:
    """Collect rows; draw a panel for each problem when the summary comes."""
    return writers.collected(lambda rows, _: draw(path / "asynchrony", rows))


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw errors by delay, a curve for each rate, and diverged runs as crosses."""
    problems = list(dict.fromkeys(row["problem"] for row in rows))
    size = (3.0 * len(problems) + 1, 3.6)
    drawing = figures.drawing(path, 1, len(problems), size=size, sharey=True)
    with drawing as (_, panels):
        for axes, name in zip(panels, problems, strict=True):
            mine = [row for row in rows if row["problem"] == name]
            for rate, curve in itertools.groupby(mine, lambda row: row["rate"]):
                shown = [row for row in curve if row["error"] and row["error"] > 0]
                axes.plot(*taus(shown), "o-", label=f"rate {rate:g}")
                axes.plot(*taus([row for row in shown if row["diverged"]]), "kx")
            title = f"{name} nonzeros" if name.isdecimal() else name
            axes.set_title(f"{title}, overlap {mine[0]['overlap']:.2g}")
            axes.set(xlabel="delay τ", yscale="log")
            axes.set_xscale("symlog", linthresh=1)
        panels[0].set_ylabel("objective above the optimum")
        panels[0].legend()


def taus(rows: Sequence[Row]) -> tuple[list[float], list[float]]:
    return [row["tau"] for row in rows], [row["error"] for row in rows]
