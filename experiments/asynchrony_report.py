"""Errors by delay, step and sparsity in; a table, a verdict and a figure out."""

import itertools
import math
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dml.metrics import figures, writers
from dml.metrics.writers import Row, Writer
from dml.types import Batch

TWICE = 2.0  # the error without delay: more is not tolerated
CLAIM = (  # Mania 2015: τ below examples over conflicts, and 1/ε
    "the delay that is tolerated grows with sparsity and falls with the step"
)


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


def tolerated(cases: Sequence[Case]) -> dict[tuple[str, float], float]:
    """Return the longest delay up to which no error is TWICE that without one."""
    found: dict[tuple[str, float], float] = {}
    for key, group in itertools.groupby(cases, lambda case: (case.problem, case.rate)):
        mine = list(group)
        most = TWICE * mine[0].error
        later = (tau for _, _, _, tau, error in mine if not error <= most)
        end = next(later, math.inf)
        found[key] = max((case.tau for case in mine if case.tau < end), default=0.0)
    return found


def verdict(cases: Sequence[Case]) -> dict[str, Any]:
    """Judge the claim by all neighbours in sparsity, or in step; say it."""
    longest = tolerated(cases)
    summary: dict[str, Any] = {}
    for case in cases:
        name = f"{case.problem}_{case.rate:g}"
        summary[f"tolerated_{name}"] = longest[case.problem, case.rate]
        summary[f"error_{name}_{case.tau:g}"] = case.error
    problems = list(dict.fromkeys(case.problem for case in cases))  # sparse ones first
    rates = list(dict.fromkeys(case.rate for case in cases))
    seen = [
        judged(
            "sparsity",
            [
                (f"{a} to {b} at rate {rate:g}", longest[a, rate], longest[b, rate])
                for a, b in itertools.pairwise(problems)
                for rate in rates
            ],
        ),
        judged(
            "step",
            [
                (f"rate {a:g} to {b:g} of {name}", longest[name, a], longest[name, b])
                for a, b in itertools.pairwise(rates)
                for name in problems
            ],
        ),
    ]
    summary["verdict"] = said = "; ".join(seen)
    sys.stdout.write(f"claim (Mania 2015): {CLAIM}\nours: {said}\n")
    return summary


def judged(what: str, pairs: Sequence[tuple[str, float, float]]) -> str:
    """Say of pairs, each a name and two delays, whether the second is the shorter."""
    falls = sum(before > after for _, before, after in pairs)
    rises = [name for name, before, after in pairs if before < after]
    found = f"{what}: shorter in {falls} of {len(pairs)} pairs, longer in {len(rises)}"
    if rises:
        return f"{found} ({', '.join(rises)}): {'in part' if falls else 'fails'}"
    return f"{found}: {'holds' if falls else 'not seen'}"


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
