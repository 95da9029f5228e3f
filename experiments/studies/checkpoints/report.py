"""Tables, figures and conclusion of checkpoints.py."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dml.figures import style as figures
from dml.runs.results import Run
from dml.runs.writers import Row
from dml.types import BadInput
from dml.wire.costs.checkpointing import (
    INTERVALS,
    Failures,
    best,
    expected_seconds,
    young,
)
from dml.wire.plans.placement import (
    PLACEMENTS,
    enumerated,
    group_formula,
    probability,
    sampled,
)
from studies.checkpoints import overhead
from studies.checkpoints.failures import Job, sampled_seconds, virtual_seconds
from studies.checkpoints.overhead import Network

RUN_SEGMENTS = 100  # of each run of the Monte Carlo
MAX_FAILURES = 20.0  # mean number of failures of an interval that is simulated
MAX_SETS = 20_000  # sets of failed machines that are enumerated


class Arguments(NamedTuple):
    """The arguments of all tables.

    Attributes:
      failures: Costs of checkpoints and failures.
      factors: Intervals in multiples of the best one.
      segments: Intervals of work of a virtual cluster.
      ranks: Number of virtual ranks.
      runs: Number of runs of the Monte Carlo.
      machines: Number of machines.
      copies: Number of copies of each state.
      draws: Number of sets of failed machines.
      network: Network of the measured overhead; None: not measured.
      share: Largest measured overhead.
      repeats: Number of pairs of the measured overhead.
      folder: Folder of checkpoints.
      seed: Random seed.
    """

    failures: Failures
    factors: Sequence[float]
    segments: int
    ranks: int
    runs: int
    machines: int
    copies: int
    draws: int
    network: Network | None
    share: float
    repeats: int
    folder: Path
    seed: int


Tables = Mapping[str, Sequence[Row]]  # rows of earlier tables by name


def check_failures(arguments: Arguments) -> None:
    """Raise BadInput if an interval would hardly ever end without a failure."""
    failures = arguments.failures
    longest = max(arguments.factors) * best(failures) + failures.checkpoint
    most = max(longest, failures.restart) / failures.mean
    if most > math.log(MAX_FAILURES):
        raise BadInput(
            f"expected intervals and restarts of at most "
            f"{math.log(MAX_FAILURES):.1f} means between failures, got {most:.3g}; "
            "pass a larger --mean or smaller --factors"
        )


def choice_rows(arguments: Arguments, tables: Tables) -> Iterator[Row]:
    """Yield the interval of each formula, and its expected time."""
    failures = arguments.failures
    least = expected_seconds(failures, best(failures), 1)
    for name, choose in INTERVALS.items():
        interval = choose(failures)
        expected = expected_seconds(failures, interval, 1)
        yield {
            "formula": name,
            "interval": interval,
            "expected": expected,
            "above_best": expected / least - 1,
        }


def interval_rows(arguments: Arguments, tables: Tables) -> Iterator[Row]:
    """Yield the time per second of work by interval: simulated and expected."""
    failures, seed = arguments.failures, arguments.seed
    for factor in arguments.factors:
        interval = factor * best(failures)
        expected = expected_seconds(failures, interval, 1)
        many = Job(failures, interval, RUN_SEGMENTS)
        one = Job(failures, interval, arguments.segments)
        runs = sampled_seconds(many, seed, arguments.runs)
        sampled_mean = runs.mean() / (RUN_SEGMENTS * interval)
        virtual = virtual_seconds(one, arguments.ranks, seed)
        virtual /= arguments.segments * interval
        yield {
            "factor": factor,
            "interval": interval,
            "expected": expected,
            "sampled": sampled_mean,
            "sampled_error": sampled_mean / expected - 1,
            "virtual": virtual,
            "virtual_error": virtual / expected - 1,
        }


def recovery_rows(arguments: Arguments, tables: Tables) -> Iterator[Row]:
    """Yield the probability of recovery by placement and number of failures."""
    size, copies = arguments.machines, arguments.copies
    for name, place in PLACEMENTS.items():
        placement = place(size, copies)
        for failures in range(1, min(4 * copies, size) + 1):
            published = name == "groups" and not size % copies
            published &= copies <= failures < 2 * copies
            yield {
                "placement": name,
                "machines": size,
                "copies": copies,
                "failures": failures,
                "draws": arguments.draws,
                "probability": probability(placement, failures),
                "formula": group_formula(size, copies, failures) if published else None,
                "enumerated": enumerated(placement, failures)
                if math.comb(size, failures) <= MAX_SETS
                else None,
                "sampled": sampled(
                    placement, failures, arguments.draws, arguments.seed
                ),
            }


def overhead_rows(arguments: Arguments, tables: Tables) -> Iterator[Row]:
    """Yield the measured costs of saves."""
    if arguments.network:
        measured = overhead.rows(
            arguments.network, arguments.share, arguments.repeats, arguments.folder
        )
        yield from (row | {"share": arguments.share} for row in measured)


TABLES: dict[str, Callable[[Arguments, Tables], Iterable[Row]]] = {
    "formulas": choice_rows,
    "intervals": interval_rows,
    "recovery": recovery_rows,
    "overhead": overhead_rows,
}


def summarize(tables: Tables) -> dict[str, Any]:
    """Return the largest errors, the intervals and the overheads."""
    summary: dict[str, Any] = {
        f"interval_{row['formula'].lower()}": row["interval"]
        for row in tables["formulas"]
    }
    for key in ("sampled_error", "virtual_error"):
        summary[key] = max(abs(row[key]) for row in tables["intervals"])
    for row in tables["overhead"]:
        summary[f"overhead_{row['mode']}"] = row["overhead"]
        summary[f"save_interval_{row['mode']}"] = row["interval"]
    return summary


def conclude(run: Run) -> str:
    """Return the conclusion."""
    summary = run.summary
    text = (
        f"The best interval is {summary['interval_exact']:.1f} s, Young's "
        f"{summary['interval_young']:.1f} s; simulated times are within "
        f"{max(summary['sampled_error'], summary['virtual_error']):.2%} of the formula."
    )
    if "save_interval_background" in summary:
        text += (
            f" A save every {summary['save_interval_background']:.2f} s in the "
            f"background adds {summary['overhead_background']:.1%} to the time of a "
            f"training."
        )
    return text


def draw(path: Path, tables: Tables, failures: Failures) -> None:
    """Draw the time by interval, and the recovery by the number of failures."""
    rows = sorted(tables["intervals"], key=lambda row: row["interval"])
    intervals = [row["interval"] for row in rows]
    series = {
        "formula": (intervals, [row["expected"] for row in rows]),
        "random runs": (intervals, [row["sampled"] for row in rows]),
        "virtual cluster": (intervals, [row["virtual"] for row in rows]),
        "Young's interval": (
            [young(failures)],
            [expected_seconds(failures, young(failures), 1)],
        ),
    }
    figures.curves(
        path / "intervals",
        series,
        x="work between checkpoints in s",
        y="time per second of work",
        log="x",
        dashed=["formula"],
    )
    recovery: dict[str, tuple[list[float], list[float]]] = {}
    for row in tables["recovery"]:
        for key, suffix in (("probability", ""), ("sampled", ", random sets")):
            xs, ys = recovery.setdefault(row["placement"] + suffix, ([], []))
            xs.append(row["failures"])
            ys.append(row[key])
    figures.curves(
        path / "recovery",
        recovery,
        x="failed machines",
        y="probability that all states survive",
        dashed=[name for name in recovery if "," in name],
    )
