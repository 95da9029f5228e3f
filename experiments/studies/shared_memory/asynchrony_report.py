"""The trainings, table, summary and figure of asynchrony.py."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
from lab.claims import grouped, matching
from lab.flags import FlagValues
from lab.writing import flatten_rows

from dml import sim
from dml.figures import style as figures
from dml.metrics.timer import Timer
from dml.models.sparse import problem as descent
from dml.models.sparse import svm
from dml.runs import writers
from dml.runs.writers import Row, Writer
from dml.sim.delays import DelayDistribution
from dml.strategies.shared.delayed import delayed
from dml.strategies.shared.workers import Descent, orders
from dml.train import curve
from dml.types import Batch, Comm, Params
from studies.shared_memory.asynchrony_claims import tolerated

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
    """Return the mean of ⟨x, x'⟩ over pairs of examples: the mean's squared norm."""
    return float(np.square(batch.inputs.mean(axis=0)).sum())


def errors(
    batch: Batch,
    rates: Sequence[float],
    taus: Sequence[float],
    law: DelayDistribution,
    values: FlagValues,
) -> Iterator[Row]:
    """Train with each rate and delay; yield the error and its ratio to no delay."""
    data = svm.documents(batch, values.mu)
    start = np.zeros(batch.inputs.shape[1], data.values.dtype)
    least = svm.objective(svm.optimum(data, len(start)), data)
    problem = descent.problem(svm, data, start)

    def error(table: Params) -> dict[str, float]:
        return {"error": svm.objective(table, data) - least}

    for rate, tau in product(rates, taus):

        def program(comm: Comm, rate: float = rate, tau: float = tau) -> dict[str, Any]:
            steps = delayed(
                problem,
                islice(orders(problem.examples, 1, values.seed), values.epochs),
                Descent(lambda epoch: rate, values.momentum),
                comm=comm,
                timer=Timer(),
                distribution=law._replace(
                    draws=lambda draws, n: tau * law.draws(draws, n)
                ),
                seed=values.seed,
                per_coordinate=values.per_coordinate,
            )
            return curve(steps, error, finite=False).summary

        results = sim.run(program, 1)[0]
        if tau == taus[0]:
            serial = results["error"]
        yield {
            "rate": rate,
            "tau": tau,
            "error": results["error"],
            "ratio": results["error"] / serial,
            "diverged": not results["error"]
            < 1 - least,  # 1: the objective at the start
            "delay_mean": results["delay_mean"],
            "delay_max": results["delay_max"],
        }


def summarised(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the flat summary: all errors, and the tolerated delays."""
    delays = {
        f"tolerated_{problem}_{rate:g}": tau
        for (problem, rate), tau in tolerated(rows).items()
    }
    return delays | flatten_rows(rows, "{key}_{problem}_{rate:g}_{tau:g}", "error")


def chart(path: Path) -> AbstractContextManager[Writer]:
    """Collect rows; draw a panel for each problem at the end."""
    return writers.collected(lambda rows, _: draw(path / "asynchrony", rows))


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw errors by delay, a curve for each rate, and diverged runs as crosses."""
    problems = grouped(rows, "problem")
    size = (3.0 * len(problems) + 1, 3.6)
    drawing = figures.drawing(path, 1, len(problems), size=size, sharey=True)
    with drawing as (_, panels):
        for axes, (name, rows_of_problem) in zip(panels, problems.items(), strict=True):
            for rate, curve in grouped(rows_of_problem, "rate").items():
                shown = [row for row in curve if row["error"] and row["error"] > 0]
                axes.plot(*points(shown), "o-", label=f"rate {rate:g}")
                axes.plot(*points(matching(shown, diverged=True)), "kx")
            title = f"{name} nonzeros" if name.isdecimal() else name
            axes.set_title(f"{title}, overlap {rows_of_problem[0]['overlap']:.2g}")
            axes.set(xlabel="delay τ", yscale="log")
            axes.set_xscale("symlog", linthresh=1)
        panels[0].set_ylabel("objective above the optimum")
        panels[0].legend()


def points(rows: Sequence[Row]) -> figures.Curve:
    """Return the errors by delay."""
    return [row["tau"] for row in rows], [row["error"] for row in rows]
