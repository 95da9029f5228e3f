"""Tables, figure and conclusion of environments.py."""

import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dml.environments.named import find
from dml.figures import style as figures
from dml.runs.results import Run
from dml.runs.writers import Columns, Row, scaled_cell
from dml.types import BadInput
from studies.environments import steppers
from studies.environments.steppers import OWN, Stepper

ACTIONS = 64  # different actions of a copy
COLUMNS: dict[str, Columns] = {
    "speeds": {
        "environment": (11, "{environment}"),
        "copies": (6, "{copies}"),
        "stepper": (16, "{stepper}"),
        "us/call": (9, scaled_cell("seconds", 1e6, ".2f")),
        "M steps/s": (9, scaled_cell("speed", 1e-6, ".3f")),
        "dml/this": (8, "{ratio:.1f}"),
        "of best": (8, "{best_ratio:.1f}"),
        "quartiles": (15, "{low:.3f} {high:.3f}"),
        "best": (9, scaled_cell("best", 1e-6, ".3f")),
    }
}
TITLES = {"speeds": "Steps of environments per second"}


class Arguments(NamedTuple):
    """The arguments of the table.

    Attributes:
      environments: Names of environments.
      copies: Numbers of copies.
      steppers: Names of steppers.
      repeats: Number of rounds of measurements.
      seconds: Duration of a measurement.
      seed: Seed of the actions.
    """

    environments: Sequence[str]
    copies: Sequence[int]
    steppers: Sequence[str]
    repeats: int
    seconds: float
    seed: int


def available(names: Sequence[str]) -> list[str]:
    """Return the steppers whose packages are installed; print the others."""
    result = []
    for name in names:
        try:
            steppers.make(name, "cartpole", 1)
        except BadInput as error:
            sys.stdout.write(f"{name} is left out: {error}\n")
        else:
            result.append(name)
    return result


def speed_rows(arguments: Arguments, tables: Any) -> Iterator[Row]:
    """Yield the speed of each stepper, by environment and number of copies."""
    for environment in arguments.environments:
        for copies in arguments.copies:
            yield from speeds(arguments, environment, copies)


def speeds(arguments: Arguments, environment: str, copies: int) -> list[Row]:
    """Measure all steppers in turn, in each round; return a row for each.

    A ratio is the median over rounds of the ratio of two speeds of one round. The best
    speed is that of the fastest round, which other programs disturb least.
    """
    made = {
        name: stepper
        for name in arguments.steppers
        if (stepper := steppers.make(name, environment, copies))
    }
    try:
        runs = {
            name: measured(stepper, environment, copies, arguments)
            for name, stepper in made.items()
        }
        rounds = [
            {name: run() for name, run in runs.items()}
            for _ in range(arguments.repeats)
        ]
    finally:
        for stepper in made.values():
            stepper.close()
    rows = []
    for name, stepper in made.items():
        values = [copies * stepper.steps / one[name] for one in rounds]
        low, _, high = statistics.quantiles(values) if len(values) > 1 else 3 * values
        paired = [one[name] / stepper.steps / one[OWN] for one in rounds]
        rows.append(
            {
                "environment": find(environment).name,
                "copies": copies,
                "stepper": name,
                "seconds": statistics.median(one[name] for one in rounds),
                "speed": statistics.median(values),
                "low": low / 1e6,
                "high": high / 1e6,
                "ratio": statistics.median(paired),
                "best": max(values),
            }
        )
    best = next(row["best"] for row in rows if row["stepper"] == OWN)
    return [row | {"best_ratio": best / row["best"]} for row in rows]


def measured(
    stepper: Stepper, environment: str, copies: int, arguments: Arguments
) -> Callable[[], float]:
    """Warm a stepper up; return a function that measures the seconds of a call."""
    random = np.random.default_rng(arguments.seed)
    shape = (ACTIONS, copies) if stepper.steps == 1 else (4, stepper.steps, copies)
    actions = random.integers(0, find(environment).actions, shape, stepper.dtype)

    def run(calls: int) -> float:
        chosen = list(islice(cycle(actions), calls))
        start = time.perf_counter()
        for one in chosen:
            stepper.step(one)
        return (time.perf_counter() - start) / calls

    run(3)  # compiles
    run(max(1, 100 // stepper.steps))  # until copies are in different steps
    calls = max(1, round(arguments.seconds / min(run(1) for _ in range(5))))
    return lambda: run(calls)


TABLES: dict[str, Callable[[Arguments, Any], Iterable[Row]]] = {"speeds": speed_rows}


def summarize(tables: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    """Return the speeds, and the ratios to each other stepper."""
    summary: dict[str, Any] = {}
    for row in tables["speeds"]:
        name = "{environment}_{stepper}_{copies}".format(**row)
        summary[f"speed_{name}"] = row["speed"]
        if row["stepper"] != OWN:
            summary[f"ratio_{name}"] = row["ratio"]
            summary[f"best_ratio_{name}"] = row["best_ratio"]
    return summary


def conclude(run: Run) -> str:
    """Return the conclusion: the smallest and largest ratio to each stepper."""
    summary = run.summary
    by_stepper: dict[str, list[float]] = {}
    for key, value in summary.items():
        if key.startswith("ratio_"):
            stepper = next(name for name in steppers.STEPPERS if f"_{name}_" in key)
            by_stepper.setdefault(stepper, []).append(value)
    parts = [
        f"{min(values):,.1f} to {max(values):,.1f} times {name}"
        for name, values in by_stepper.items()
    ]
    return f"Speed of dml: {', '.join(parts) or 'no other stepper to compare'}."


def draw(path: Path, tables: Mapping[str, Sequence[Row]]) -> None:
    """Draw the speed by the number of copies, a panel for each environment."""
    series: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    for row in tables["speeds"]:
        curves = series.setdefault(row["environment"], {})
        xs, ys = curves.setdefault(row["stepper"], ([], []))
        xs.append(row["copies"])
        ys.append(row["speed"])
    figures.panels(
        path / "speeds",
        [
            figures.Panel(name, curves, "copies", "steps per second")
            for name, curves in series.items()
        ],
        log="xy",
    )
