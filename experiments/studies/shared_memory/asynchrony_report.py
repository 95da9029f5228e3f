"""The trainings, table, summary and figure of asynchrony.py."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice, product
from pathlib import Path
from typing import Any

from lab.claims import grouped, matching
from lab.flags import FlagValues
from lab.writing import flatten_rows
import numpy as np

from dml import sim
from dml.figures import style as figures
from dml.metrics.timer import Timer
from dml.models.sparse import problem as descent
from dml.models.sparse import svm
from dml.runs import writers
from dml.runs.results import Run
from dml.runs.writers import Row, Writer
from dml.sim.delays import DelayDistribution
from dml.strategies.shared.delayed import delayed
from dml.strategies.shared.workers import Descent, orders
from dml.train import curve
from dml.types import Batch, Comm, Params
from studies.shared_memory.asynchrony_claims import tolerated_delays

COLUMNS: writers.Columns = {
    "problem": (10, "{problem}"),
    "overlap": (7, "{overlap:.4f}"),
    "rate": (5, "{rate:g}"),
    "tau": (5, "{tau:g}"),
    "error": (8, "{error:.5f}"),
    "x serial": (8, "{ratio:.2f}"),
    "": (9, lambda row: "diverged" if row["diverged"] else ""),
    "mean delay": (10, "{delay_mean:.1f}"),
    "max delay": (9, "{delay_max:.0f}"),
}


def overlap(batch: Batch) -> float:
    """Return the mean of ⟨x, x'⟩ over pairs of examples: the mean's squared norm."""
    return float(np.square(batch.inputs.mean(axis=0)).sum())


def errors(
    batch: Batch,
    rates: Sequence[float],
    taus: Sequence[float],
    distribution: DelayDistribution,
    flag_values: FlagValues,
) -> Iterator[Row]:
    """Train with each rate and delay; yield the error, also relative to no delay.

    Args:
        batch: examples.
        rates: learning rates.
        taus: factors of the delays; the first one is 0, the reference.
        distribution: distribution of the delays of reads, in updates, for factor 1.
        flag_values: parsed flags.
    """
    data = svm.documents(batch, flag_values.mu)
    start = np.zeros(batch.inputs.shape[1], data.values.dtype)
    optimum = svm.objective(svm.optimum(data, len(start)), data)
    problem = descent.problem(svm, data, start)
    start_error = 1 - optimum  # the objective of the start value 0 is 1

    def error(table: Params) -> dict[str, float]:
        return {"error": svm.objective(table, data) - optimum}

    for rate, tau in product(rates, taus):

        def program(comm: Comm, rate: float = rate, tau: float = tau) -> dict[str, Any]:
            steps = delayed(
                problem,
                islice(
                    orders(problem.examples, 1, flag_values.seed), flag_values.epochs
                ),
                Descent(lambda epoch: rate, flag_values.momentum),
                comm=comm,
                timer=Timer(),
                distribution=distribution._replace(
                    draws=lambda draws, n: tau * distribution.draws(draws, n)
                ),
                seed=flag_values.seed,
                per_coordinate=flag_values.per_coordinate,
            )
            return curve(steps, error, finite=False).summary

        results = sim.run(program, 1)[0]
        if tau == taus[0]:
            undelayed_error = results["error"]
        yield {
            "rate": rate,
            "tau": tau,
            "error": results["error"],
            "ratio": results["error"] / undelayed_error,
            # `not <` instead of `>=`: an error of NaN has diverged, too.
            "diverged": not results["error"] < start_error,
            "delay_mean": results["delay_mean"],
            "delay_max": results["delay_max"],
        }


def summarize(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the flat summary: all errors, and the tolerated delays."""
    delays = {
        f"tolerated_{problem}_{rate:g}": tau
        for (problem, rate), tau in tolerated_delays(rows).items()
    }
    return delays | flatten_rows(rows, "{key}_{problem}_{rate:g}_{tau:g}", "error")


def conclude(run: Run) -> str:
    """Return the largest tolerated delay of each problem, at the smallest rate."""
    rate = min(row["rate"] for row in run.rows)
    texts = []
    for problem, rows in grouped(run.rows, "problem").items():
        taus = [
            row["tau"]
            for row in rows
            if row["rate"] == rate and not row["diverged"] and row["ratio"] <= 2
        ]
        overlap = rows[0]["overlap"]
        texts.append(f"{max(taus):g} on {problem} (overlap {overlap:.3g})")
    return f"Largest tolerated delays at rate {rate:g}: {', '.join(texts)}."


def chart(path: Path) -> AbstractContextManager[Writer]:
    """Collect rows; draw a panel for each problem at the end."""
    return writers.collector(lambda rows, _: draw(path / "asynchrony", rows))


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw errors by delay, a curve for each rate, and diverged runs as crosses."""
    problems = grouped(rows, "problem")
    size = (3.0 * len(problems) + 1, 3.6)
    drawing = figures.drawing(path, 1, len(problems), size=size, sharey=True)
    with drawing as (_, panels):
        for axes, (name, rows_of_problem) in zip(panels, problems.items(), strict=True):
            for rate, curve in grouped(rows_of_problem, "rate").items():
                positive = [row for row in curve if row["error"] and row["error"] > 0]
                axes.plot(*points(positive), "o-", label=f"rate {rate:g}")
                axes.plot(*points(matching(positive, diverged=True)), "kx")
            title = f"{name} nonzeros" if name.isdecimal() else name
            axes.set_title(f"{title}, overlap {rows_of_problem[0]['overlap']:.2g}")
            axes.set(xlabel="delay τ", yscale="log")
            axes.set_xscale("symlog", linthresh=1)
        panels[0].set_ylabel("objective above the optimum")
        panels[0].legend()


def points(rows: Sequence[Row]) -> figures.Curve:
    """Return the delays and the errors of the rows."""
    return [row["tau"] for row in rows], [row["error"] for row in rows]
