"""The rows, table, summary and figure of asynchrony.py."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from asynchrony_claims import tolerated

from dml.metrics.figures import save
from dml.metrics.writers import Row, Writer
from dml.types import Batch


class Case(NamedTuple):
    """One training."""

    problem: str
    overlap: float  # of two examples: the less, the sparser
    rate: float
    tau: float
    error: float  # the objective above the optimum's


COLUMNS: dict[str, tuple[int, Callable[[Row], str]]] = {
    "problem": (10, lambda row: row["problem"]),
    "overlap": (7, lambda row: f"{row['overlap']:.4f}"),
    "rate": (5, lambda row: f"{row['rate']:g}"),
    "tau": (5, lambda row: f"{row['tau']:g}"),
    "mean": (6, lambda row: f"{row['delay_mean']:.1f}"),
    "most": (5, lambda row: f"{row['delay_max']:.0f}"),
    "error": (8, lambda row: f"{row['error']:.5f}"),
    "x serial": (8, lambda row: f"{row['ratio']:.2f}"),
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


@contextmanager
def chart(path: Path) -> Iterator[Writer]:
    """Collect rows; draw a panel for each problem when the summary comes."""
    rows: list[Row] = []
    yield Writer(rows.append, lambda summary: draw(path / "asynchrony", rows))


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw errors by delay, a curve a rate; what diverged is drawn as a cross."""
    from matplotlib.figure import Figure

    groups = {
        name: list(group)
        for name, group in itertools.groupby(rows, lambda row: row["problem"])
    }
    figure = Figure(figsize=(3.0 * len(groups) + 1, 3.6), layout="constrained")
    panels = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    for axes, (name, mine) in zip(panels, groups.items(), strict=True):
        title = name if not name.isdecimal() else f"{name} nonzeros"
        curves = itertools.groupby(mine, lambda row: row["rate"])
        for number, (rate, curve) in enumerate(curves):
            shown = [row for row in curve if row["error"] and row["error"] > 0]
            xy = [row["tau"] for row in shown], [row["error"] for row in shown]
            style = {"color": f"C{number}", "markersize": 4, "linewidth": 1.4}
            axes.plot(*xy, "o-", label=f"rate {rate:g}", **style)
            lost = [(row["tau"], row["error"]) for row in shown if row["diverged"]]
            axes.plot(*zip(*lost, strict=True), "kx") if lost else None
        axes.set(title=f"{title}, overlap {mine[0]['overlap']:.2g}", xlabel="delay τ")
        axes.set_xscale("symlog", linthresh=1)
        axes.set_yscale("log")
        axes.grid(alpha=0.3, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("objective above the optimum")
    panels[0].legend(frameon=False)
    save(figure, path)
